"""The words by which the prefilter finds the lines that the general reader may read."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from .general_labels import COUNTERS

# Words of lines that hold one number of a step each, below its announcement or in a table of keys and values.
OF_BLOCKS = frozenset(
    """
    lr current_lr learning_rate grad_norm step_time approxkl approx_kl clipfrac clip_fraction ep_rewmean
    ep_rew_mean ep_len_mean eplenmean explained_variance fps eprewmean averageepret stdepret maxepret minepret
    eplen policy_entropy entropy rollout time_elapsed returns
    """.split()
)
# Counters that stand on many other lines, too; those of a training have another word.
_COMMON_WORDS = frozenset([b"it", b"pass"])
_COUNTER_WORDS = (frozenset(word.strip(".").encode() for word in COUNTERS) | {b"episode"}) - _COMMON_WORDS
_BLOCK_WORDS = frozenset(word.encode() for word in OF_BLOCKS | {"total_timesteps", "nupdates", "n_updates"})
_SCORES = frozenset(
    b"auc acc accuracy rmse mae mse logloss binary_logloss ppl perplexity train_auc train_acc train_accuracy"
    b" return_mean avgcost traincost train_cost total_cost train_nll train_mean_nll"
    # A loss in other languages; what is no ASCII letter is a blank.
    b" verlust perte perda perdita perdida rdida kay".split()
)
_MEASURES = _SCORES | frozenset(b"score xent nll ce cost elbo bpb bpc bpd lr kimg return train_time frames fps".split())
_BESIDE_COUNTERS = _COUNTER_WORDS | frozenset(
    b"i info debug warning root py train training learning time eta elapsed s m ms sec seconds of total date per"
    b" starting finished completed running beginning output recent stats minutes hours".split()
)
# Parts of words that name what a training measures.
MEASURE_STEMS = frozenset([b"loss", b"reward", b"entropy"])
# The words that may make a line one for this reader.
WORDS = _COUNTER_WORDS | _MEASURES | _BLOCK_WORDS
# A line that only counts has hardly a word beside its counters.
_WORDS_BESIDE_COUNTERS = 2
# A row of a table of keys and values, or a line of one number, has no more words.
_WORDS_OF_CELLS = 4


def may_count(stems: Collection[bytes], words: Sequence[bytes], found: Set[bytes]) -> bool:
    """Whether a line may be for this reader, by its words in lower case.

    `stems` are the `MEASURE_STEMS` in its words, `found` has those of `WORDS` among them. The line has a counter and
    something that a training measures, or one of them and hardly a word beside it.
    """
    measures = b"loss" in stems or b"reward" in stems
    if WORDS.isdisjoint(found):
        return measures
    measures = measures or not _SCORES.isdisjoint(found)
    if not _COUNTER_WORDS.isdisjoint(found):
        if measures or b"entropy" in stems or not _MEASURES.isdisjoint(found):
            return True
        beside = len(_BESIDE_COUNTERS.union(words)) - len(_BESIDE_COUNTERS)
        return beside <= _WORDS_BESIDE_COUNTERS or (b"time" in words and b"data" in words)
    return measures or (len(words) <= _WORDS_OF_CELLS and not _BLOCK_WORDS.isdisjoint(found))
