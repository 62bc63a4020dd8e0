// The handler without protection.
import { handle, serve } from './handler.mjs';

serve((_, order) => handle(order));
