"""Run by the interpreter of the stock client's environment: what a robot's owner writes, against a server. Prints JSON.

openpi_robot.py COMMAND ARGUMENT: a function of this file and its argument.
"""

import base64
import json
import pickle
import sys
import time

import numpy as np
from openpi_client import action_chunk_broker, msgpack_numpy, websocket_client_policy

PROMPT = "put the red cube on the white pad"
STATE = np.array([0, 0, 0.15, 0, 0, 0, 0, -0.1, -0.1, 0.02, 0, -0.1, 0.02, 0.1, -0.1, 0.02, -0.15, 0.1, 0.15, 0.1])


def observation(**more):
    return {"observation/state": STATE, "prompt": PROMPT, **more}


def connect(where):
    """`where`: a URL, or "host port", and a key if there is one."""
    target = json.loads(where)
    return websocket_client_policy.WebsocketClientPolicy(**target)


def rollout(where):
    """Metadata, a few chunks, and the broker on top."""
    client = connect(where)
    metadata = client.get_server_metadata()
    replies = [client.infer(observation()) for _ in range(3)]
    broker = action_chunk_broker.ActionChunkBroker(client, action_horizon=5)
    steps = [broker.infer(observation()) for _ in range(12)]
    broker.reset()
    steps.append(broker.infer(observation()))
    client.reset()
    return {
        "policy": metadata["policy"],
        "horizon": metadata["action_horizon"],
        "shapes": [list(reply["actions"].shape) for reply in replies],
        "dtypes": [str(reply["actions"].dtype) for reply in replies],
        "timing": [sorted(reply["server_timing"]) for reply in replies],
        "policy_timing": sorted(replies[0]["policy_timing"]),
        "steps": [list(step["actions"].shape) for step in steps],
        "chunks": [step["echo"]["chunk_id"] for step in steps],
        "arrays": [key for key, value in replies[0].items() if isinstance(value, np.ndarray)],
    }


def long_rollout(where):
    """A hundred and fifty steps of a robot behind the broker: which chunks and sessions they came from, and how long the slowest took."""
    client = connect(where)
    broker = action_chunk_broker.ActionChunkBroker(client, action_horizon=5)
    steps, times = [], []
    for number in range(150):
        state = STATE + 0.001 * number
        began = time.monotonic()
        steps.append(broker.infer({**observation(), "observation/state": state}))
        times.append(time.monotonic() - began)
    chunks = [step["echo"]["chunk_id"] for step in steps]
    return {
        "chunks": list(dict.fromkeys(chunks)),
        "sessions": sorted({step["echo"]["session_id"] for step in steps}),
        "finite": all(bool(np.isfinite(step["actions"]).all()) for step in steps),
        "slowest_ms": max(times) * 1000,
    }


def mistake(where):
    """A bad observation raises with a sentence; the connection is gone after that, as with openpi's own server."""
    client = connect(where)
    said = []
    for fields in ({"observation/state": STATE[:3], "prompt": PROMPT}, observation()):
        try:
            client.infer(fields)
            said.append(["none", ""])
        except Exception as error:
            said.append([type(error).__name__, str(error)])
    again = connect(where).infer(observation())
    return {"said": said, "again": list(again["actions"].shape)}


def patient(where):
    """One inference that takes long, and how long it took."""
    client = connect(where)
    began = time.monotonic()
    reply = client.infer(observation())
    return {"seconds": time.monotonic() - began, "shape": list(reply["actions"].shape)}


def refused(where):
    try:
        connect(where)
    except Exception as error:
        return {"said": [type(error).__name__, str(error)]}
    return {"said": ["none", ""]}


def packed(where):
    """The bytes of the values pickled at `where`, as the stock client packs them."""
    with open(where, "rb") as file:
        return [base64.b64encode(msgpack_numpy.packb(value)).decode() for value in pickle.load(file)]


def alike(where):
    """Are the bytes and values pickled at `where` the same to the stock client's unpackb?"""
    with open(where, "rb") as file:
        pairs = pickle.load(file)
    return [same(msgpack_numpy.unpackb(data), value) for data, value in pairs]


def same(left, right):
    if isinstance(right, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))
