"""States that are kept on the way: what a context goes back to, and what the tree knows of where nothing was published."""

import numpy as np

from llamay.kv import Cache, Context


def write(cache: Cache, context: Context, tokens: list[int], chunk: int) -> None:
    for at in range(0, len(tokens), chunk):
        cache.extend(context, len(tokens[at : at + chunk]))
        cache.commit(context, tokens[at : at + chunk])
        cache.check_integrity()


def test_every_so_many_passed_pages_stay_the_trees():
    """What there is to go back to without having been published, as long as pages are not needed for more."""
    pool = Cache(40, 10, 17, every=3)
    context, _ = pool.match([])
    write(pool, context, list(range(200)), chunk=50)
    assert np.count_nonzero(pool.groups[1].held) == 3 and pool.groups[1].pages.free == 5  # pages 2, 5, 8; and 11, 12
    found = [pool.recompute_from(context, at) for at in (200, 193, 192, 191, 150, 144, 47)]
    assert found == [200, 193, 192, 144, 144, 144, 0]  # in the last page to any token, before that to states
    assert pool.known(list(range(192))) == 144 and pool.publish(context) == 3 and pool.known(list(range(192))) == 192
    assert pool.rewind(context, 150).tolist() == list(range(144, 150)) and context.position == 144
    pool.check_integrity()
    write(pool, context, [7] * 60, chunk=20)
    assert pool.evict(2, 1) == 2  # the least recently used go first, and of one use the uppermost
    assert [pool.known(list(range(count))) for count in (60, 100, 192)] == [0, 96, 144]
    quiet, _ = pool.match([])
    quiet.remembered = False
    pool.evict(40)
    write(pool, quiet, [9] * 100, chunk=10)
    assert not pool.known([9] * 100)
