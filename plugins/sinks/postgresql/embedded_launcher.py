"""Becomes a PostgreSQL program: PARENT UID GID CAPABILITIES PROGRAM ARGUMENTS...

PostgreSQL refuses to run as root, so root becomes UID first (-1: stay who we are). Where that user could not reach the
program or the data directory (both may be under /root), CAPABILITIES=1 keeps the right to pass through directories,
which is less than opening them to everybody. The program is told to end when PARENT ends, however that happens.
This is a script of its own because none of this is safe between fork and exec of a process with threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_CAPBSET_READ = 23
PR_SET_SECUREBITS = 28
SECBIT_NO_SETUID_FIXUP = 4
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
CAPABILITY_VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def become(libc: ctypes.CDLL, uid: int, gid: int, keep_capability: bool) -> None:
    """Give up root for `uid`; with `keep_capability` keep the weakest capability there is to pass through directories.

    A container may have neither capability: then the program itself says what it cannot reach.
    """
    if keep_capability:
        libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
        # Else access(2), with which initdb looks for postgres, leaves capabilities out of account for all but root.
        libc.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if keep_capability:
        held = [c for c in (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE) if libc.prctl(PR_CAPBSET_READ, c, 0, 0, 0) == 1][:1]
        bits = sum(1 << capability for capability in held)
        libc.capset(
            ctypes.byref(_Header(CAPABILITY_VERSION_3, 0)), (_Data * 2)(_Data(bits, bits, bits), _Data(0, 0, 0))
        )
        for capability in held:
            libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0)


def launch(arguments: list[str]) -> None:
    """Change user, tie this process to its parent, become the program."""
    parent, uid, gid, keep_capability = (int(argument) for argument in arguments[:4])
    command = arguments[4:]
    libc = ctypes.CDLL(None, use_errno=True)
    if uid >= 0:
        become(libc, uid, gid, keep_capability == 1)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the process that wanted PostgreSQL has gone")
    os.execv(command[0], command)


if __name__ == "__main__":
    launch(sys.argv[1:])
