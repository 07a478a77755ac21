"""What a Cache must do, with nothing remembered that can be worked out: owners are lists, counts are taken anew each time."""

from collections import Counter

PAGE = 16


class Reference:
    def __init__(self, full: int, window: int = 0, span: int = 0) -> None:
        self.sizes, self.spans = [full, window][: 1 + (span > 0)], [0, span]
        self.contexts = {}  # id: [tokens, one list of pages a group, room]
        self.tree = {}  # prefix in whole pages: [last use, its last page in each group]
        self.next = self.uses = 0
        self.copies = []  # (group, from, to)

    def owners(self, g, tree=True):
        tables = [tables[g] for _, tables, _ in self.contexts.values()] + [[e[1][g] for e in self.tree.values() if tree]]
        return Counter(page for table in tables for page in table if page is not None)

    def free(self, g):
        return sorted(set(range(self.sizes[g])) - set(self.owners(g)))

    def first(self, g, position):
        return max(0, position - self.spans[g] + 1) // PAGE if g else 0

    def known(self, tokens):
        whole = [tokens[:end] for end in range(0, len(tokens) + 1, PAGE)]
        depth = next((d for d in range(1, len(whole)) if whole[d] not in self.tree), len(whole)) - 1
        def usable(d):
            return all(self.tree[whole[k]][1][g] is not None for g in range(len(self.sizes)) for k in range(self.first(g, d * PAGE) + 1, d + 1))
        return PAGE * max(d for d in range(depth + 1) if usable(d))

    def use(self, tokens):
        self.uses += 1
        for end in range(PAGE, len(tokens) + 1, PAGE):
            self.tree[tokens[:end]][0] = self.uses

    def found(self, tokens):
        self.use(tokens)
        entries = [self.tree[tokens[:end]][1] for end in range(PAGE, len(tokens) + 1, PAGE)]
        return [[e[g] if k >= self.first(g, len(tokens)) else None for k, e in enumerate(entries)] for g in range(len(self.sizes))]

    def open(self, tokens, tables):
        self.contexts[self.next] = [tokens, tables, len(tokens)]
        self.next += 1

    def give_up(self, g):
        counts = self.owners(g)
        leaves = [t for t in self.tree if not any(len(u) > len(t) and u[: len(t)] == t for u in self.tree)] if g == 0 else \
            [t for t in self.tree if self.tree[t][1][g] is not None]
        victim = min(leaves, key=lambda t: (counts[self.tree[t][1][g]] > 1, self.tree[t][0], len(t)))
        if g == 0:
            del self.tree[victim]
        else:
            self.tree[victim][1][g] = None

    def reclaimable(self, g):
        return len(self.owners(g)) - len(self.owners(g, tree=False))

    def allocate(self, tokens):
        pages, firsts = -(-len(tokens) // PAGE), [self.first(g, len(tokens)) for g in range(len(self.sizes))]
        if not self.reserve([lambda counts, first=first: pages - first for first in firsts]):
            return False
        self.open(tokens, [[None] * first + self.free(g)[: pages - first] for g, first in enumerate(firsts)])
        return True

    def reserve(self, needs):  # one function of the counts a group; False, changing nothing, where it cannot be
        if any(need(self.owners(g, tree=False)) > self.sizes[g] - len(self.owners(g, tree=False)) for g, need in enumerate(needs)):
            return False
        for g, need in enumerate(needs):
            while need(self.owners(g)) > len(self.free(g)):
                self.give_up(g)
        return True

    def extend(self, id, count):
        tokens, tables, room = self.contexts[id]
        at, missing = len(tokens) // PAGE, max(0, -(-(len(tokens) + count) // PAGE) - len(tables[0]))
        partly = len(tokens) % PAGE > 0
        needs = [lambda counts, g=g: missing + (partly and counts[tables[g][at]] > 1) for g in range(len(tables))]
        if not self.reserve(needs):
            return False
        for g, table in enumerate(tables):
            taken = self.free(g)[: needs[g](self.owners(g))]
            if len(taken) > missing:
                self.copies.append((g, table[at], taken[0]))
                table[at] = taken.pop(0)
            table += taken
        self.contexts[id][2] = max(room, len(tokens) + count)
        return True

    def commit(self, id, tokens):
        self.contexts[id][0] += tokens
        for g, table in enumerate(self.contexts[id][1]):
            for k in range(self.first(g, len(self.contexts[id][0]))):
                table[k] = None

    def fork(self, id, n):
        tokens, tables, _ = self.contexts[id]
        for _ in range(n):
            self.open(tokens, [table[: -(-len(tokens) // PAGE)] for table in tables])

    def rewind(self, id, position):
        tokens, tables, _ = self.contexts[id]
        whole = all(None not in table[self.first(g, position) : -(-position // PAGE)] for g, table in enumerate(tables))
        start = position if whole else self.known(tokens[:position])
        kept = [table[: -(-start // PAGE)] for table in tables] if whole else self.found(tokens[:start])
        self.contexts[id] = [tokens[:start], kept, start]
        return tokens[start:position]

    def publish(self, id):
        tokens, tables, _ = self.contexts[id]
        for k in range(len(tokens) // PAGE):
            entry = self.tree.setdefault(tokens[: (k + 1) * PAGE], [0, [table[k] for table in tables]])
            entry[1] = [table[k] if page is None else page for page, table in zip(entry[1], tables)]
        self.use(tokens[: len(tokens) // PAGE * PAGE])
