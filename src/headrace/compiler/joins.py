"""Joins of streams as operators over row stores and session stores."""

from __future__ import annotations

from dataclasses import replace

from headrace.compiler.context import CompilerContext
from headrace.compiler.physical_plan import distinct_stores
from headrace.definitions.join_shape import JoinShape, join_shape, with_keys
from headrace.definitions.lateness import Lateness
from headrace.operators.base import Operator
from headrace.operators.rows.delta_join import DeltaJoin, JoinInput
from headrace.operators.rows.outer_join import OuterJoin
from headrace.operators.rows.probe_join import ProbeJoin
from headrace.operators.rows.row_store import Retention, StoredRows
from headrace.operators.sessions.session_join import SessionJoin, SessionMembers
from headrace.operators.sessions.session_store import SessionStore
from headrace.plan.expressions import Column, Expr, without_casts
from headrace.plan.join_graph import JoinGraph, Leaf
from headrace.plan.nodes import Join, JoinKind, Node, SameSession
from headrace.plan.times import held_back_by, join_lag
from headrace.plan.types import Schema
from headrace.planner.probe_order import is_probed, probed_graph
from headrace.state import store_names


def compile_join(compilation: CompilerContext, node: Join) -> Operator:
    if isinstance(node.time, SameSession):
        return _session_join(compilation, node, node.time)
    shape = join_shape(node)
    clocks = (
        held_back(compilation, leaf.node, shape.own_time(index))
        for index, leaf in enumerate(shape.graph.leaves)
    )
    streams = node.streams().union(*clocks)
    leaves = shape.graph.leaves
    inputs = tuple(_join_input(compilation, shape, index, streams) for index in range(len(leaves)))
    sources = tuple(compilation.input(leaf.node) for leaf in leaves)
    pairs = DeltaJoin(node, inputs, sources, shape, streams, compilation.policy)
    pairs.stores = distinct_stores(source.rows.store for source in inputs)
    if node.kind is JoinKind.INNER:
        if not is_probed(node, shape.graph, compilation.policy):
            return pairs
        probed = with_keys(shape, probed_graph(shape.graph))
        looked_up = tuple(
            replace(one, keys=_stored_keys(one.rows, probed.graph, index))
            for index, one in enumerate(inputs)
        )
        probes = ProbeJoin(node, pairs, looked_up, probed, streams, compilation.policy)
        probes.stores = pairs.stores
        return probes
    left, right = inputs
    outer = OuterJoin(node, pairs, left, right, shape, streams)
    outer.stores = pairs.stores
    return outer


def _join_input(
    compilation: CompilerContext, shape: JoinShape, index: int, streams: frozenset[str]
) -> JoinInput:
    graph = shape.graph
    leaf = graph.leaves[index]
    late = Lateness(streams, shape.lag) if graph.timed else None
    retention = Retention(streams, shape.kept(index))
    own_time = shape.own_time(index)
    time = leaf.schema.names[leaf.node.schema.names.index(own_time)]
    rows = compilation.stored_rows(leaf.node, own_time, late, retention)
    keys = _stored_keys(rows, graph, index)
    names = [name for _, name in keys if name is not None]
    rows.store.counted |= set(names)
    rows.store.wish_split(names)
    return JoinInput(rows, leaf.schema, time, {} if graph.timed else leaf.lives, keys)


def _session_join(compilation: CompilerContext, node: Join, time: SameSession) -> Operator:
    sides = (
        (node.left, node.left_schema, time.left.name),
        (node.right, node.right_schema, time.right.name),
    )
    clocks = (held_back(compilation, s, _own_name(s, schema, name)) for s, schema, name in sides)
    streams, lag = node.streams().union(*clocks), join_lag(node)
    members = SessionMembers(
        node, time, compilation.input(node.left), compilation.input(node.right)
    )
    late = Lateness(streams, lag)
    name = _sessions_name(compilation, node)
    store = compilation.stores.get(name)
    if not isinstance(store, SessionStore):
        store = SessionStore(
            name, members, members.keys, members.time, time.gap, late, lag, compilation.starts_at
        )
        compilation.register(store)
    retention = Retention(streams, lag + time.gap, sessions=store.name)
    left, right = (
        JoinInput(
            compilation.stored_rows(side, _own_name(side, schema, column), late, retention),
            schema,
            column,
        )
        for side, schema, column in sides
    )
    operator = SessionJoin(node, store, left, right)
    operator.stores = (store, left.rows.store, right.rows.store)
    return operator


def _sessions_name(compilation: CompilerContext, node: Join) -> str:
    return store_names.sessions_of_join(node, compilation.starts_at)


def held_back(compilation: CompilerContext, node: Node, time: str) -> frozenset[str]:
    """The stores of session joins whose open sessions hold back a time, as clocks."""
    names = frozenset(_sessions_name(compilation, join) for join in held_back_by(node, time))
    if names:
        # Stores come with the operators below.
        compilation.input(node)
    for name in names:
        store = compilation.stores[name]
        assert isinstance(store, SessionStore)
        store.holds_back = True
    return names


def _stored_keys(
    rows: StoredRows, graph: JoinGraph, index: int
) -> tuple[tuple[int, str | None], ...]:
    """The keys of an input, by the position of their class, with their columns of the store."""
    return tuple(
        (position, _stored_key(rows, graph.leaves[index], key))
        for position, members in enumerate(graph.key_classes)
        for owner, key in members
        if owner == index
    )


def _stored_key(rows: StoredRows, leaf: Leaf, key: Expr) -> str | None:
    """The column of a store that a join's key is, if it is one."""
    key = without_casts(key)
    return rows.stored_name(leaf.own_name(key.name)) if isinstance(key, Column) else None


def _own_name(side: Node, schema: Schema, name: str) -> str:
    """A side's own name for a column of the join."""
    return side.schema.names[schema.names.index(name)]
