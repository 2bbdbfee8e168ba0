"""The network block: z_k = h_k(x_k; theta_k) with any torch module as h_k.

These are FedBCD's local sub-models (Figure 1a): each party has its own network, and they meet in a sum of scores. In a
local step the signal s = dL/dz is the one of the last exchange (fresh at the label holder), and dh_k/dtheta_k is always
fresh:

    g_k = 1/b sum_i s_i dh_k(x_i; theta_k)/dtheta_k + l2 theta_k + mu (theta_k - theta_k at the last exchange)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from colonnade.blocks import FloatArray, NotFinite, Rows
from colonnade.errors import DataError, OptionError
from colonnade.networks.torch_modules import alone, need_torch, to_value
from colonnade.networks.torch_optimisers import OPTIMISERS
from colonnade.networks.torch_veils import is_veiled, leaving, outputs_of, width_behind

_CHUNK = 512  # rows that are scored at a time: bounds the memory of a convolution's images
_SAMPLE, _POWER_STEPS = 256, 12  # rows and steps of the power iteration behind "auto" step sizes
_PROBES = 4  # of the rows' mean squared length, beside it
_TRIED = 2  # rows that a network is tried with before anything is sent
# Normal numbers for what leaves, in the shape of a table that holds the means.
Normals = Callable[[FloatArray], FloatArray]
# What a party adds to the loss of a batch: of its inputs, what its network gives, and what leaves of that.
Penalty = Callable[[Any, Any, Any], Any]
_RAISED = (RuntimeError, ValueError, TypeError, IndexError, AttributeError)  # from torch, if something does not fit


class NetworkInputs:
    """A party's columns as its network takes them: dense or CSR, in rows of a given shape.

    Parameters
    ----------
    value
        The columns, as `blocks.column_values.columns_to_value` returns them.
    shape
        The shape of a row; None where it is flat.
    kind
        The torch type of the module's parameters.
    """

    def __init__(self, value: Any, shape: Sequence[int] | None, kind: Any) -> None:
        self._csr = value if isinstance(value, tuple) else None
        self._dense = None if isinstance(value, tuple) else value
        self.shape: tuple[int, int] = value[3] if isinstance(value, tuple) else value.shape
        self._row_shape, self._kind = tuple(shape) if shape else None, kind

    def take(self, rows: Rows) -> Any:
        """Return these rows as a tensor."""
        torch = need_torch()
        table = np.asarray(self._dense)[rows] if self._csr is None else self._unpacked(rows)
        tensor = torch.from_numpy(np.ascontiguousarray(table)).to(self._kind)
        return tensor if self._row_shape is None else tensor.reshape(len(rows), *self._row_shape)

    def _unpacked(self, rows: Rows) -> Any:
        data, columns, starts, (_, width) = self._csr  # type: ignore[misc]
        out = np.zeros((len(rows), width), dtype=data.dtype)
        counts = starts[rows + 1] - starts[rows]
        # The positions of all these rows' numbers, one row after another.
        at = np.repeat(starts[rows] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        out[np.repeat(np.arange(len(rows)), counts), columns[at].astype(np.int64)] = data[at]
        return out


class NetworkBlock:
    """theta_k of one party: a module, its optimiser, and the party's own random stream, which dropout draws from."""

    def __init__(
        self,
        module: Any,
        value: Any,
        *,
        party: str,
        shape: Sequence[int] | None = None,
        optimiser: str = "sgd",
        l2: float = 0.0,
        stream: Any = None,
    ) -> None:
        self.module, self.party, self.l2 = module, party, l2
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.optimiser = OPTIMISERS[optimiser](self.parameters)
        self.shape, self._kind = shape, kind_of(module)
        self.columns = self.inputs(value)
        self.rows = self.columns.shape[0]
        self.outputs = width_behind(module, width_of(module, self.columns, party))
        self.normals: Normals | None = None  # what a veil draws from; None where nothing leaves
        self.penalties: tuple[Penalty, ...] = ()
        self.intercept_pace = 1.0  # a network's intercepts are parameters like others
        self.pace = 1.0  # the optimiser's step divided by the algorithm's
        self._stream = stream
        self._size = sum(int(parameter.numel()) for parameter in module.parameters())

    def inputs(self, value: Any) -> NetworkInputs:
        """Return other rows of the same columns in the form that the network takes."""
        return NetworkInputs(value, self.shape, self._kind)

    def touched(self, rows: Rows) -> int:
        """Return about how many parameters one pass over these rows multiplies with, for the virtual clock."""
        return len(rows) * max(self._size, int(self.columns.shape[1]))

    def check_trainable(self, count: int) -> None:
        """Refuse batches of so many rows where the network can't learn from them."""
        check_trainable(self.module, self.columns.take(np.arange(count)), self.party)

    def open(self, rows: Rows) -> NetworkSteps:
        """Start on a batch of these rows."""
        return NetworkSteps(self, rows)

    def forward(self, x: Any, *, training: bool) -> Any:
        """Return h(x), one column per score; in training dropout draws from this party's stream."""
        return self.forward_with_penalty(x, training=training)[0]

    def forward_with_penalty(self, x: Any, *, training: bool) -> tuple[Any, Any]:
        """Return h(x), and what this party adds to the loss of these rows; None where that is nothing."""
        torch = need_torch()
        self.module.train(training)
        with alone(self._stream), torch.set_grad_enabled(training):
            outputs = outputs_of(self.module, x)
            if training and self._stream is not None:
                self._stream = torch.get_rng_state()
            z = self._leaving(outputs)
            added = [penalty(x, outputs, z) for penalty in self.penalties if training]
        return z, sum(added[1:], added[0]) if added else None

    def _leaving(self, outputs: Any) -> Any:
        torch = need_torch()
        if self.normals is None or not is_veiled(self.module):
            return leaving(self.module, outputs)
        means = leaving(self.module, outputs.detach()).double().numpy()
        return leaving(self.module, outputs, torch.from_numpy(self.normals(means)).to(outputs.dtype))

    def scores(self, rows: Rows, of: NetworkInputs | None = None) -> FloatArray:
        """Return contributions of any rows, of the training columns or of others, with dropout off."""
        columns = of or self.columns
        pieces = [
            self.forward(columns.take(rows[at : at + _CHUNK]), training=False).double().numpy()
            for at in range(0, len(rows), _CHUNK)
        ]
        return self.flat(np.concatenate(pieces) if pieces else np.zeros((0, self.outputs)))

    def flat(self, z: FloatArray) -> FloatArray:
        """Return one score per row as a vector and several as a matrix; NaN and infinity never leave."""
        if not np.isfinite(z).all():
            raise NotFinite
        return z[:, 0] if self.outputs == 1 else z

    def gradients(self, z: Any, signal: Any, *, again: bool = False, penalty: Any = None) -> list[Any]:
        """Return J^T signal, a tensor for each parameter, and the penalty's gradient with it where there is one."""
        torch = need_torch()
        ends, weights = ([z], [signal]) if penalty is None else ([z, penalty], [signal, torch.ones_like(penalty)])
        with alone():
            found = torch.autograd.grad(ends, self.parameters, weights, allow_unused=True, retain_graph=again)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(self.parameters, found, strict=True)]

    # -- what a safe step size depends on -----------------------------------------------------------------------

    def penalty_value(self) -> float:
        """Return l2 / 2 times the squared length of all parameters that learn."""
        return 0.5 * self.l2 * squares(self.parameters) if self.l2 else 0.0

    def penalty_curvature(self) -> float:
        """Return the penalty's second derivative, which is l2 everywhere."""
        return self.l2

    def curvature(self, batch: int) -> float:
        """Return the largest eigenvalue of J^T J / n, plus thrice the mean squared length of a row of J over b.

        J is dz/dtheta at the parameters now, over a sample of rows. A batch is more curved than all rows are, by the
        more the fewer rows it has. For a linear module this is the linear block's curvature. A network's own curvature
        comes on top and changes on the way, so the step is a first guess, which schedule="adaptive" shortens.
        """
        torch = need_torch()
        if not self.parameters:
            return 0.0
        n = self.rows
        rows = np.random.default_rng(n).choice(n, size=min(n, _SAMPLE), replace=False)
        self.module.eval()
        stream = torch.Generator().manual_seed(n)
        v = [torch.randn(p.shape, generator=stream, dtype=p.dtype) for p in self.parameters]
        largest = 0.0
        with alone():
            z = leaving(self.module, outputs_of(self.module, self.columns.take(rows)))
            w = torch.zeros_like(z, requires_grad=True)
            g = torch.autograd.grad(z, self.parameters, w, create_graph=True, allow_unused=True)
            used = [i for i, one in enumerate(g) if one is not None and one.requires_grad]
            for _ in range(_POWER_STEPS if used else 0):
                length = sum(float(v[i].double().square().sum()) for i in used) ** 0.5
                ahead = [v[i] / max(length, 1e-300) for i in used]
                # J v as the derivative of v.(J^T w) by w: works for all that autograd knows.
                (u,) = torch.autograd.grad([g[i] for i in used], w, ahead, retain_graph=True)
                back = torch.autograd.grad(z, [self.parameters[i] for i in used], u, retain_graph=True)
                largest = float(u.double().square().sum()) / len(rows)
                for i, one in zip(used, back, strict=True):
                    v[i] = one
            # Signs s at random: |J^T s|^2 is on average the sum of the rows' squared lengths (Hutchinson).
            squared = 0.0
            for _ in range(_PROBES if used else 0):
                signs = torch.randint(0, 2, z.shape, generator=stream).to(z.dtype) * 2 - 1
                back = torch.autograd.grad(z, [self.parameters[i] for i in used], signs, retain_graph=True)
                squared += sum(float(one.double().square().sum()) for one in back) / (_PROBES * z.numel())
        return largest + 3.0 * squared / batch

    def intercept_curvature(self) -> float:
        """Return 0, as a network's intercepts are part of `curvature`."""
        return 0.0

    # -- state --------------------------------------------------------------------------------------------------

    def state(self, into: Any = None) -> Any:
        """Return the parameters in the form of `torch_modules.to_value`."""
        return to_value(self.module)

    def restore(self, state: Any) -> None:
        """Put parameters back; what the optimiser remembers stays."""
        torch = need_torch()
        kept = dict(zip(state[0], state[1], strict=True))
        with torch.no_grad():
            for name, tensor in self.module.state_dict().items():
                tensor.copy_(torch.from_numpy(np.array(kept[name])))

    def freeze(self) -> Any:
        """Return the parameters, what the optimiser remembers, and the random stream, all to the bit."""
        stream = None if self._stream is None else self._stream.numpy().copy()
        return (self.state(), self.optimiser.freeze(), stream, self.pace)

    def thaw(self, state: Any) -> None:
        """Put back what `freeze` returned."""
        torch = need_torch()
        parameters, optimiser, stream, self.pace = state
        self.restore(parameters)
        self.optimiser.thaw(optimiser)
        self._stream = None if stream is None else torch.from_numpy(np.array(stream))


class NetworkSteps:
    """Local steps on one batch, in which a forward pass serves the contribution and the step after it."""

    def __init__(self, block: NetworkBlock, rows: Rows) -> None:
        self.block, self.rows = block, rows
        self.touched = block.touched(rows)
        self._x = block.columns.take(rows)
        self._z: Any = None  # h_k of the batch with its graph, as long as the parameters are those it was made with
        self._penalty: Any = None  # what this party adds to the loss, of the same pass
        self._before: list[Any] | None = None
        self.also: list[Any] = []  # gradients of the next step that do not come through the contribution

    def contribution(self) -> FloatArray:
        """Return h_k of the batch."""
        self._pass()
        return self.block.flat(self._z.detach().double().numpy())

    def step(self, signal: FloatArray, eta: float, proximal: float) -> None:
        """Take one local step along g_k, as the top of this file has it."""
        torch, block = need_torch(), self.block
        self._pass()
        if proximal and self._before is None:
            self._before = [parameter.detach().clone() for parameter in block.parameters]
        if not block.parameters:
            return
        weights = torch.from_numpy(signal.reshape(len(self.rows), -1) / len(self.rows)).to(self._z.dtype)
        gradients = block.gradients(self._z, weights, penalty=self._penalty)
        gradients = [one + more for one, more in zip(gradients, self.also or [0.0] * len(gradients), strict=True)]
        self._z, self._penalty, self.also = None, None, []
        with torch.no_grad(), alone():
            for index, parameter in enumerate(block.parameters):
                if block.l2:
                    gradients[index] = gradients[index] + block.l2 * parameter
                if proximal and self._before is not None:
                    gradients[index] = gradients[index] + proximal * (parameter - self._before[index])
            if not eta * block.pace < torch.finfo(torch.float32).max:
                raise NotFinite  # a step that no parameter can take
            block.optimiser.step(gradients, eta * block.pace)

    def close(self) -> None:
        """End the batch: all steps are taken, and the graph of the last pass is dropped."""
        self._z, self._penalty = None, None

    def _pass(self) -> None:
        if self._z is None:
            self._z, self._penalty = self.block.forward_with_penalty(self._x, training=True)


def squares(parameters: list[Any]) -> float:
    """Return the squared length of all parameters together."""
    found = sum(float(parameter.detach().double().square().sum()) for parameter in parameters)
    if not np.isfinite(found):
        raise NotFinite
    return found


def kind_of(module: Any) -> Any:
    """Return the type of the numbers that a module takes: that of its parameters, whether they learn or not."""
    torch = need_torch()
    return next((p.dtype for p in module.parameters() if p.dtype in (torch.float32, torch.float64)), torch.float32)


def width_of(module: Any, columns: NetworkInputs, party: str) -> int:
    """Return how many numbers a network gives for a row; refuse one that can't take the columns."""
    torch = need_torch()
    module.eval()
    rows = np.arange(min(_TRIED, columns.shape[0]))
    try:
        with alone(), torch.no_grad():
            x = columns.take(rows)
            z = outputs_of(module, x) if is_veiled(module) else module(x)
    except _RAISED as error:
        raise DataError(
            f"the network of party {party!r} can't take its {columns.shape[1]} columns ({_said(error)}); give a "
            f"network that takes rows of that many numbers, or their shape as shape={{{party!r}: ...}}"
        ) from None
    if not isinstance(z, torch.Tensor) or z.dim() not in (1, 2) or z.shape[0] != len(rows):
        shape = tuple(z.shape) if isinstance(z, torch.Tensor) else type(z).__name__
        raise OptionError(
            f"the network of party {party!r} gives {shape} for {len(rows)} rows, it must give a row of scores for each"
        )
    return 1 if z.dim() == 1 else int(z.shape[1])


def check_trainable(module: Any, x: Any, party: str) -> None:
    """Refuse a network that scores rows but can't learn from so few: batch norm needs more than one, for example."""
    torch, tried = need_torch(), copy.deepcopy(module).train()  # a copy: batch norm counts what it sees
    try:
        with alone(), torch.enable_grad():
            z = outputs_of(tried, x)
    except _RAISED as error:
        rows = "1 row" if len(x) == 1 else f"{len(x)} rows"
        raise OptionError(
            f"the network of party {party!r} can't be trained on a batch of {rows} ({_said(error)}); give larger "
            f"batches, or a network that takes such ones"
        ) from None
    if any(parameter.requires_grad for parameter in tried.parameters()) and not z.requires_grad:
        raise OptionError(
            f"the network of party {party!r} has parameters that derivatives of its scores do not reach; leave out "
            f"what cuts them off (detach, no_grad), or set requires_grad_(False) on all of them"
        )


def _said(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
