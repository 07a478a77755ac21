"""What a Cache must do, remembering nothing that can be worked out: who owns a page is counted anew each time."""

from collections import Counter

PAGE = 16


def pages(positions):
    return -(-positions // PAGE)


def prefixes(tokens):
    return [tokens[: end + PAGE] for end in range(0, len(tokens) - PAGE + 1, PAGE)]


class Reference:
    def __init__(self, full, window=0, span=0, every=0):
        self.every = every  # of the pages that a window passes, each so many-th stays the tree's
        self.sizes, self.spans, self.groups = [full, window], [0, span], range(1 + (span > 0))
        self.contexts = {}  # id: [tokens, a list of pages (None: a hole) for each group, room]
        self.tree = {}  # tokens of whole pages: [last use, for each group the page that holds the last 16]
        self.next, self.uses, self.copies = 0, 0, []  # copies: (group, from, to)

    def owners(self, g, tree=True):
        held = [tables[g] for _, tables, _ in self.contexts.values()] + [[e[1][g] for e in self.tree.values() if tree]]
        return Counter(page for table in held for page in table if page is not None)

    def free(self, g):
        return sorted(set(range(self.sizes[g])) - set(self.owners(g)))

    def first(self, g, position):  # the first page that computing a position needs
        return max(0, position - self.spans[g] + 1) // PAGE if g else 0

    def tables(self, tokens):  # what the tree has of them
        return [
            [None] * self.first(g, len(tokens))
            + [self.tree[prefix][1][g] for prefix in prefixes(tokens)[self.first(g, len(tokens)) :]]
            for g in self.groups
        ]

    def known(self, tokens):
        ends = [0, *(len(prefix) for prefix in prefixes(tokens) if all(p in self.tree for p in prefixes(prefix)))]
        return max(
            end
            for end in ends
            if all(None not in t[self.first(g, end) :] for g, t in enumerate(self.tables(tokens[:end])))
        )

    def use(self, tokens):
        self.uses += 1
        for prefix in prefixes(tokens):
            self.tree[prefix][0] = self.uses

    def open(self, tokens, tables):
        self.contexts[self.next] = [tokens, tables, len(tokens)]
        self.next += 1

    def match(self, tokens):
        self.use(tokens[: self.known(tokens)])
        self.open(tokens[: self.known(tokens)], self.tables(tokens[: self.known(tokens)]))

    def fork(self, id, n):
        tokens, tables, _ = self.contexts[id]
        for _ in range(n):
            self.open(tokens, [table[: pages(len(tokens))] for table in tables])

    def publish(self, id):
        tokens, tables, _ = self.contexts[id]
        for k, prefix in enumerate(prefixes(tokens)):
            entry = self.tree.setdefault(prefix, [0, [None for _ in self.groups]])
            entry[1] = [table[k] if page is None else page for page, table in zip(entry[1], tables, strict=True)]
        self.use(tokens)

    def commit(self, id, tokens):
        self.contexts[id][0] += tokens
        for g, table in enumerate(self.contexts[id][1]):
            end = self.first(g, len(self.contexts[id][0]))
            passed = [k for k, page in enumerate(table[:end]) if page is not None]
            for k in (k for k in passed if self.every and (k + 1) % self.every == 0):
                whole = self.contexts[id][0][: (k + 1) * PAGE]
                for at, prefix in enumerate(prefixes(whole)):
                    entry = self.tree.setdefault(prefix, [0, [self.contexts[id][1][0][at], None]])
                    if at == k and entry[1][g] is None:
                        entry[1][g] = table[k]
                self.use(whole)
            table[:end] = [None] * end

    def rewind(self, id, position):
        tokens, tables, _ = self.contexts[id]
        whole = all(None not in table[self.first(g, position) : pages(position)] for g, table in enumerate(tables))
        start = position if whole else self.known(tokens[:position])
        if not whole:
            self.use(tokens[:start])
        kept = [table[: pages(start)] for table in tables] if whole else self.tables(tokens[:start])
        self.contexts[id] = [tokens[:start], kept, start]
        return tokens[start:position]

    def extend(self, id, count):  # False, changing nothing, where an empty tree would leave too few pages
        tokens, tables, room = self.contexts[id]
        at, missing = len(tokens) // PAGE, max(0, pages(len(tokens) + count) - len(tables[0]))

        def needed(g, owners):
            return missing + (len(tokens) % PAGE > 0 and owners[tables[g][at]] > 1)

        if not self.reserve(needed):
            return False
        for g, table in enumerate(tables):
            taken = self.free(g)[: needed(g, self.owners(g))]
            if len(taken) > missing:
                self.copies.append((g, table[at], taken[0]))
                table[at] = taken.pop(0)
            table += taken
        self.contexts[id][2] = max(room, len(tokens) + count)
        return True

    def allocate(self, tokens):
        firsts = [self.first(g, len(tokens)) for g in self.groups]
        if not self.reserve(lambda g, owners: pages(len(tokens)) - firsts[g]):
            return False
        self.open(tokens, [[None] * firsts[g] + self.free(g)[: pages(len(tokens)) - firsts[g]] for g in self.groups])
        return True

    def reserve(self, needed):
        if any(
            needed(g, self.owners(g, tree=False)) > self.sizes[g] - len(self.owners(g, tree=False)) for g in self.groups
        ):
            return False
        for g in self.groups:
            while needed(g, self.owners(g)) > len(self.free(g)):
                self.give_up(g)
        return True

    def reclaimable(self, g):
        return len(self.owners(g)) - len(self.owners(g, tree=False))

    def give_up(self, g):  # those that come free first, then the least recently used, then the shortest
        owners = self.owners(g)
        inner = {u[:-PAGE] for u in self.tree}
        held = [t for t, (_, found) in self.tree.items() if (t not in inner if g == 0 else found[g] is not None)]
        victim = min(held, key=lambda t: (owners[self.tree[t][1][g]] > 1, self.tree[t][0], len(t)))
        if g == 0:
            del self.tree[victim]
        else:
            self.tree[victim][1][g] = None
