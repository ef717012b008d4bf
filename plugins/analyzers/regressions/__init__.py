"""What got worse within a job: its loss, its pace, its memory, its checkpoints, and whether a restore was right.

Each module holds the pure rules of one subject; `finding.py` is what they answer.
"""
