"""Chat templates come from model files: a hostile one costs little time and memory, and reaches nothing."""

import time
import tracemalloc

import pytest

from llamay.errors import TemplateError
from llamay.tok.budget import Limits
from llamay.tok.chat import ChatTemplate

LIMITS = Limits(steps=30_000, characters=1 << 22, output=1 << 20, seconds=2.0)
TWIN = "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}"
TREE = "{% set n = namespace(x={}) %}{% for i in range(60) %}{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}"
LONG = "{% set a = 'x' * 4000000 %}"
EVER = "{% for i in range(99999) %}{% for j in range(99999) %}"

COSTLY = [
    EVER + "{% endfor %}{% endfor %}",
    EVER + "x{% endfor %}{% endfor %}",
    "{% set x %}" + EVER + "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}{% endset %}",
    "{% filter upper %}" + EVER + "{{ 'x' * 1000 }}{% endfor %}{% endfor %}{% endfilter %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x * 2 %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x.replace('a', 'aa') %}{% endfor %}",
    "{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x|join(n.x) %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = '%s%s'|format(n.x, n.x) %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = '{0}{0}'.format(n.x) %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set l = [1] %}{% for i in range(60) %}{% set _ = l.extend(l) %}{% endfor %}",
    "{% set l = [] %}{% for i in range(99999) %}{% set _ = l.append('x' * 1000 ~ i) %}{% endfor %}",
    TWIN + "{{ n.x == n.y }}",
    TWIN + "{{ 1 < 2 < n.x }}",
    TWIN + "{{ n.x in [n.y] }}",
    TWIN + "{{ [n.x].index(n.y) }}",
    TWIN + "{{ [n.x].count(n.y) }}",
    TWIN + "{{ [n.x, n.y]|sort }}",
    TWIN + "{{ [n.x, n.y]|max }}",
    TWIN + "{{ [n.x]|select('equalto', n.y)|list }}",
    TWIN + "{{ [[n.x], [n.y]]|groupby(0) }}",
    TREE + "{{ n.x }}",
    TREE + "{{ 'x' ~ n.x }}",
    TREE + "{{ '%s' % n.x }}",
    TREE + "{{ '%s' % [n.x] }}",
    TREE + "{{ '{}'.format(n.x) }}",
    TREE + "{{ n.x|tojson }}",
    TREE + "{{ n.x|string }}",
    TREE + "{{ n.x|upper }}",
    TREE + "{{ n.x|wordcount }}",
    TREE + "{{ n.x is lower }}",
    TREE + "{{ [n.x]|join }}",
    TREE + "{{ ''.join([n.x]) }}",
    TREE + "{{ raise_exception(n.x) }}",
    TREE + "{{ [][n.x].y }}",
    "{% set a = [] %}{% set _ = a.append(a) %}{{ a }}",
    "{% set a = [] %}{% set _ = a.append(a) %}{{ a == [a] }}",
    "{{ 'a' * 10000000000 }}",
    "{{ [1] * 10000000000 }}",
    "{{ (1, 2) * 10000000000 }}",
    "{{ 'x'|center(10000000000) }}",
    "{{ 'x'.center(10000000000) }}",
    "{{ 'x'.ljust(10000000000) }}",
    "{{ 'x'.zfill(10000000000) }}",
    "{{ 'x'|indent(10000000000) }}",
    "{{ 'x'|indent(width=10000000000) }}",
    "{{ ('x\n' * 9999)|indent(9999) }}",
    "{{ '%10000000000d' % 1 }}",
    "{{ '%*d' % (10000000000, 1) }}",
    "{{ '{:10000000000}'.format(1) }}",
    "{{ '{:{w}}'.format(1, w=10000000000) }}",
    "{{ strftime_now('%09999999999Y') }}",
    "{{ range(10000000000) }}",
    "{{ 1.5|round(10000000000, 'ceil') }}",
    "{{ [1]|batch(10000000000, 1)|list }}",
    "{{ [1]|slice(10000000000, 1)|list }}",
    "{{ {'a': [1] * 5000}|tojson(indent=100000) }}",
    "{% set n = namespace(x=10) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "{{ 10 ** 10000 }}",
    LONG + "{{ a.replace('x', a) }}",
    LONG + "{{ a|replace('x', a) }}",
    LONG + "{{ a.strip(a) }}",
    LONG + "{{ a.split('x') }}",
    LONG + "{{ a|list|length }}",
    LONG + "{% for c in a %}{% endfor %}",
    LONG + "{% set l = [] %}{% set _ = l.extend(a) %}",
    LONG + "{% for i in range(99999) %}{{ a.count('y') }}{% endfor %}",
    LONG + "{% for i in range(99999) %}{{ a is lower }}{% endfor %}",
    LONG + "{% for i in range(99999) %}{{ 'y' in a }}{% endfor %}",
    LONG + "{% for i in range(99999) %}{{ a == a[:-1] ~ 'x' }}{% endfor %}",
    LONG + "{% for i in range(99999) %}{{ a[1:]|length }}{% endfor %}",
    "{{ ('[' * 100000)|from_json }}",
    "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{% for x in [1, 2] recursive %}{% if loop.depth < 60 %}{{ loop([1, 2]) }}{% endif %}{% endfor %}",
    "{% for i in range(99999) %}{{ range(99999)|sort|length }}{% endfor %}",
    "{% for i in range(99999) %}{{ 1.5 in range(99999) }}{% endfor %}",
    "{% for i in range(99999) %}{{ range(99999)|map('string')|list|length }}{% endfor %}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ " + "-" * 5000 + "1 }}",
    "{{ 1" + "+1" * 20000 + " }}",
    "{{ x" + ".a" * 20000 + " }}",
    "{{ x" + "|e" * 20000 + " }}",
    "{{ " + "9" * 50000 + " }}",
    "{% if 1 %}" * 2000 + "{% endif %}" * 2000,
    "{% for i in x %}" * 99 + "{% endfor %}" * 99,
    "{{ a" + "~a" * 60000 + " }}",
    "x" * 200_000,
]


@pytest.mark.parametrize("source", COSTLY, ids=lambda source: str(len(source)))
def test_a_costly_template_is_stopped(source: str) -> None:
    template = ChatTemplate(source, limits=LIMITS)
    start = time.process_time()
    with pytest.raises(TemplateError, match="chat template"):
        template.render([{"role": "user", "content": "hi"}])
        raise AssertionError(source[-80:])
    assert time.process_time() - start < 8  # several renderings, for what it can take is tried first


def test_a_costly_template_takes_little_memory() -> None:
    for source in [*COSTLY[4:14], LONG + "{{ a.split('x') }}", LONG + "{{ a|list|length }}"]:
        tracemalloc.start()
        with pytest.raises(TemplateError):
            ChatTemplate(source, limits=LIMITS)._run([{"role": "user", "content": "hi"}], {})
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100 << 20, source


LARGE = [
    "{{ (range(99999)|join('aaaaaaaaaaa')) * 10 }}",
    "{{ 'x' * 5000000 }}",
    "{{ ('x' * 1000000) ~ ('x' * 1000000) ~ ('x' * 1000000) }}",
    "{% set a = 'x' * 1000000 %}{{ [a, a, a, a, a, a, a, a]|tojson }}",
    "{% set a = 'x' * 1000000 %}{{ [a, a, a, a, a, a, a, a] }}",
    "{% set a = 'x' * 1000000 %}{{ '%s%s%s%s' % (a, a, a, a) }}",
    "{% set a = 'x' * 1000000 %}{{ '{0}{0}{0}{0}'.format(a) }}",
    "{% set a = '\x07' * 250000 %}{{ '%r%r' % (a, a) }}",
    "{% set a = 'x' * 1000000 %}{{ a.replace('x', 'xxxx') }}",
    "{% set a = 'x' * 1000000 %}{% for i in range(9) %}{{ a }}{% endfor %}",
    "{{ '%9999d' % 1 * 400 }}",
    "{{ range(9999)|map('center', 9999)|list|length }}",
]


@pytest.mark.parametrize("source", LARGE)
def test_no_template_makes_much_text_of_little(source: str) -> None:
    """With the limits in use: millions of characters, of which a prompt can have none, are refused before they are made."""
    template = ChatTemplate(source)
    _ = template._compiled
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(TemplateError, match="characters"):
        template._run([{"role": "user", "content": "hi"}], {})
    seconds, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 3 and peak < 30 << 20


def test_input_makes_room_for_itself() -> None:
    """A long message may be printed several times, formatted and quoted."""
    source = "{{ messages[0].content }}{{ '%s' % messages[0].content }}{{ messages|tojson }}{{ messages[0].content|trim }}"
    content = "word \"quoted\"\n" * 100_000
    assert len(ChatTemplate(source).render([{"role": "user", "content": content}]).text) > 4 * len(content)


FORBIDDEN = [
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.__class__.x }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'a': 1}) }}",
    "{{ messages[0].pop('role') }}",
    "{{ {}.setdefault(1, 2) }}",
    "{{ range.__self__.x }}",
    "{{ dict.fromkeys([1]) }}",
    "{{ self._TemplateReference__context.x }}",
    "{{ '{0.__class__.__mro__}'.format(1) }}",
    "{{ messages|attr('__class__') }}",
    "{{ lipsum(9) }}",
    "{{ cycler(1) }}",
    "{{ [1]|random }}",
    "{{ 'a'|urlize }}",
    "{{ 'a'.encode() }}",
    "{{ 'a'.translate({}) }}",
    "{% for i in [1] %}{{ loop.changed(1) }}{% endfor %}",
    "{% macro m(a) %}{% endmacro %}{{ m(*'abc') }}",
    "{% macro m(a) %}{% endmacro %}{{ m(**{}) }}",
    "{% include 'x' %}",
    "{% import 'x' as x %}",
    "{% from 'x' import y %}",
    "{% extends 'x' %}",
    "{% block a %}{% endblock %}",
    "{% autoescape true %}{{ '<' }}{% endautoescape %}",
    "{{ messages|%ticking }}",
]


@pytest.mark.parametrize("source", FORBIDDEN)
def test_what_is_not_listed_is_refused(source: str) -> None:
    with pytest.raises(TemplateError):
        ChatTemplate(source).render([{"role": "user", "content": "hi"}])


def test_the_callers_data_is_never_changed() -> None:
    messages = [{"role": "user", "content": "hi", "list": [1]}]
    source = "{% set l = messages[0].list[:] %}{% set _ = l.append(2) %}{{ l }}{{ messages[0].list }}"
    assert ChatTemplate(source).render(messages).text == "[1, 2][1]"
    assert messages == [{"role": "user", "content": "hi", "list": [1]}]


def test_long_conversations_have_room() -> None:
    messages = [{"role": ("user", "assistant")[at % 2], "content": f"word {at} " * 20} for at in range(6000)]
    source = (
        "{% set ns = namespace(t='') %}{% for m in messages %}{% if m.role == 'user' and 'zzz' not in m.content %}"
        "<u>{{ m.content|trim }}{% else %}<a>{{ m['content'].split('</think>')[-1] }}{% endif %}{% endfor %}"
    )
    found = ChatTemplate(source).render(messages)
    assert found.text.count("<u>") == 3000 and len(found.text) > 1_000_000
