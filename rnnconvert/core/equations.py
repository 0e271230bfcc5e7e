"""One time step of every cell, in operators alone: torch, TorchScript and every backend of Keras run these same lines.

The letters and equations are as in rnnconvert.core.cells, all gates of a step side by side in canonical order. Matrices
act from the right, so `h @ recurrent` is R h for every gate and every sequence of the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rnnconvert.core.cells import Cell

if TYPE_CHECKING:
    # TorchScript knows this name by itself, and other frameworks do not look.
    Tensor = Any


class Equations:
    """A cell's equations, for a class that has its functions as attributes; `configure` sets the rest.

    candidate_function, gate_function, output_function   the activations of a Cell
    clip_gates, clip_cell, clip_state, clip_projection   its clips by kind; functions that change nothing where it has none

    x is what `inputs` gives, (batch, gates * hidden); states are (batch, width).
    """

    if TYPE_CHECKING:
        candidate_function: Any
        gate_function: Any
        output_function: Any
        clip_gates: Any
        clip_cell: Any
        clip_state: Any
        clip_projection: Any

    def configure(self, cell: Cell, hidden_size: int) -> None:
        """Set which equations hold, as plain values that TorchScript takes for constants."""
        self.kind: str = cell.kind
        self.hidden_size = hidden_size
        self.reset_after = bool(cell.reset_after)
        self.derived: str = cell.coupled

    def step(
        self,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        recurrent: Tensor,
        recurrent_bias: Tensor | None,
        peephole: Tensor | None,
        projection: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Compute the states h' and c' after one step; a cell without c gets it back unchanged."""
        if self.kind == "lstm":
            return self.lstm(x, h, c, recurrent, peephole, projection)
        if self.kind == "gru":
            return self.gru(x, h, recurrent, recurrent_bias), c
        return self.rnn(x, h, recurrent), c

    def rnn(self, x: Tensor, h: Tensor, recurrent: Tensor) -> Tensor:
        """Compute h' = act(a_n)."""
        return self.candidate_function(self.clip_gates(x + h @ recurrent))

    def gru(self, x: Tensor, h: Tensor, recurrent: Tensor, recurrent_bias: Tensor | None) -> Tensor:
        """Compute h' = (1 - z) * n + z * h, with the reset gate before or after the candidate's product."""
        size = self.hidden_size
        if self.reset_after:
            product = h @ recurrent
            if recurrent_bias is not None:
                product = product + recurrent_bias
            r, z = self.reset_and_update(x[:, : 2 * size] + product[:, : 2 * size])
            inner = r * product[:, 2 * size :]
        else:
            r, z = self.reset_and_update(x[:, : 2 * size] + h @ recurrent[:, : 2 * size])
            inner = (r * h) @ recurrent[:, 2 * size :]
        n = self.candidate_function(self.clip_gates(x[:, 2 * size :] + inner))
        return (1 - z) * n + z * h

    def reset_and_update(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Compute r, z = gate(a_r), gate(a_z)."""
        gates = self.gate_function(self.clip_gates(a))
        return gates[:, : self.hidden_size], gates[:, self.hidden_size :]

    def lstm(
        self, x: Tensor, h: Tensor, c: Tensor, recurrent: Tensor, peephole: Tensor | None, projection: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute c' = f * c + i * g and h' = o * out(c'); the peepholes of i and f see c, that of o sees c'.

        A clip of the kind "state" bounds c and c' where they are read here, and not the c' that is returned.
        """
        size = self.hidden_size
        c = self.clip_state(c)
        a = x + h @ recurrent
        a_i, a_f, a_g, a_o = a[:, :size], a[:, size : 2 * size], a[:, 2 * size : 3 * size], a[:, 3 * size :]
        if peephole is not None:
            a_i = a_i + peephole[:size] * c
            a_f = a_f + peephole[size : 2 * size] * c
        if self.derived == "i":
            f = self.gate_function(self.clip_gates(a_f))
            i = 1 - f
        else:
            i = self.gate_function(self.clip_gates(a_i))
            f = 1 - i if self.derived == "f" else self.gate_function(self.clip_gates(a_f))
        g = self.candidate_function(self.clip_gates(a_g))
        new = self.clip_cell(f * c + i * g)
        read = self.clip_state(new)
        if peephole is not None:
            a_o = a_o + peephole[2 * size :] * read
        h = self.gate_function(self.clip_gates(a_o)) * self.output_function(read)
        if projection is not None:
            h = self.clip_projection(h @ projection)
        return h, new
