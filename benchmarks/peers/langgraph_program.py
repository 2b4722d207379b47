"""LangGraph on SQLite: three durable steps an item, one item after the other.

    python langgraph_program.py FOLDER COUNT

A graph of three nodes (take the item, decide at once, record the result), a thread of its own for each item, the SQLite
checkpointer of LangGraph (it sets WAL and syncs in full) and ``durability="sync"``: the checkpoint of each step is
committed before the next one starts. Prints one JSON line; starting up is not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

WARM_UP = 5


class State(TypedDict, total=False):
    """An item on its way."""

    item: str
    title: str
    decision: dict[str, str]
    result: str


def take(state: State) -> State:
    return {"title": state["item"]}


def decide(_state: State) -> State:
    return {"decision": {"decision": "answer", "reason": "it is so", "text": "forty-two"}}


def record(state: State) -> State:
    return {"result": state["decision"]["text"]}


def graph_of(saver: SqliteSaver) -> Any:
    plan = StateGraph(State)
    plan.add_node("take", take)
    plan.add_node("decide", decide)
    plan.add_node("record", record)
    plan.add_edge(START, "take")
    plan.add_edge("take", "decide")
    plan.add_edge("decide", "record")
    plan.add_edge("record", END)
    return plan.compile(checkpointer=saver)


def run(graph: Any, names: list[str]) -> None:
    for name in names:
        done = graph.invoke({"item": name}, {"configurable": {"thread_id": name}}, durability="sync")
        assert done["result"] == "forty-two"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    with SqliteSaver.from_conn_string(str(options.folder / "langgraph.sqlite")) as saver:
        graph = graph_of(saver)
        run(graph, [f"warm-{number}-{time.time_ns()}" for number in range(WARM_UP)])
        names = [f"item-{number}-{time.time_ns()}" for number in range(options.count)]
        started, cpu = time.perf_counter(), time.process_time()
        run(graph, names)
        took, cpu = time.perf_counter() - started, time.process_time() - cpu
        mode = saver.conn.execute("PRAGMA journal_mode").fetchone()[0]
    print(json.dumps({"items": options.count, "seconds": took, "cpu_s": cpu, "mode": mode}))


if __name__ == "__main__":
    main()
