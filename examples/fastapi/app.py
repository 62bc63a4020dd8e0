"""An ordinary orders API: it knows nothing about keys, and every POST creates an order.

    pip install fastapi uvicorn
    uvicorn app:app --port 8000
"""

import itertools
import json

from fastapi import FastAPI, Request

app = FastAPI()
numbers = itertools.count(1)
orders = []


@app.post("/orders", status_code=201)
async def create(request: Request):
    order = {"order": next(numbers), "qty": json.loads(await request.body())["qty"]}
    orders.append(order)
    return order


@app.get("/orders")
async def made():
    return {"made": len(orders)}
