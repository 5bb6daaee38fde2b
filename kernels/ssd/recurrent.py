"""Mamba-2's recurrence one step after another, with the state in registers.

Legend: B rows, T time, H heads, P head width, G groups, N state width.
"""

from __future__ import annotations

from torch import Tensor

from statelab.kernels.matrix_scan import matrix_scan


def recurrent(
    x_BTHP: Tensor,
    log_decay_BTH: Tensor,
    write_BTGN: Tensor,
    read_BTGN: Tensor,
    state_BHPN: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """See `ssd`; inputs of any float dtype up to float32, the state in float32.

    Keys are what is written, queries what is read, values x; states go transposed.
    """
    one_BT1 = (write_BTGN.unsqueeze(2), x_BTHP.unsqueeze(2))
    start_BHNP = None if state_BHPN is None else state_BHPN.transpose(-1, -2)
    y_BTHP, last_BHNP = matrix_scan(read_BTGN, *one_BT1, log_decay_BTH, None, start_BHNP, 1.0)
    return y_BTHP, last_BHNP.transpose(-1, -2)
