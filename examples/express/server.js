// An ordinary orders API: it knows nothing about keys, and every POST creates an order.
//
//   npm install express
//   node server.js
const express = require("express");

const app = express();
app.use(express.json({ type: "*/*" }));

let made = 0;

app.post("/orders", (request, response) => {
  made += 1;
  response.status(201).json({ order: made, qty: request.body.qty });
});

app.get("/orders", (_request, response) => {
  response.json({ made });
});

const server = app.listen(process.env.PORT ?? 3000, "127.0.0.1", () => {
  console.log(`orders on http://127.0.0.1:${server.address().port}`);
});
