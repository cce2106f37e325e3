"""Chat templates with the words that the families of models use, and a conversation with tools."""
# ruff: noqa: E501

from __future__ import annotations

from typing import Any

# As the families write them: macros, tools, thoughts that are cut, roles that must alternate, dates.
FAMILIES = {
    "turns with headers": (
        "{{- bos_token }}{%- set ns = namespace(system='') %}{%- if messages[0]['role'] == 'system' %}"
        "{%- set ns.system = messages[0]['content']|trim %}{%- set messages = messages[1:] %}{%- endif %}"
        "{%- if not date_string is defined %}{%- set date_string = '26 Jul 2024' %}{%- endif %}"
        "{{- '<|start_header_id|>system<|end_header_id|>\n\nToday: ' + date_string + '\n' + ns.system }}"
        "{%- if tools is not none %}{%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\n\n' }}{%- endfor %}{% endif %}"
        "{%- for m in messages %}{%- if not (m.role == 'tool' or 'tool_calls' in m) %}"
        "{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n'+ m['content'] | trim + '<|eot_id|>' }}"
        "{%- elif 'tool_calls' in m %}{%- if m.tool_calls|length != 1 %}{{- raise_exception('one call') }}{%- endif %}"
        "{%- set call = m.tool_calls[0].function %}{{- '{\"name\": \"' + call.name + '\", ' }}"
        "{{- call.arguments | tojson }}{{- '}' }}{%- for k, v in call.arguments.items() %}{{- k ~ '=' ~ v }}"
        "{%- if not loop.last %}, {% endif %}{%- endfor %}{%- else %}{{- m.content | tojson }}{%- endif %}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
    ),
    "thoughts that are cut": (
        "{%- if tools %}{{- '<|im_start|>system\n' }}{%- for t in tools %}{{- '\n' }}{{- t | tojson }}{%- endfor %}"
        "{{- '<|im_end|>\n' }}{%- endif %}{%- set ns = namespace(seeking=true, last=messages|length - 1) %}"
        "{%- for m in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}"
        "{%- if ns.seeking and m.role == 'user' and m.content is string and not (m.content.startswith('<r>') and "
        "m.content.endswith('</r>')) %}{%- set ns.seeking = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}"
        "{%- for m in messages %}{%- set content = m.content if m.content is string else '' %}"
        "{%- if m.role == 'assistant' %}{%- set thought = '' %}{%- if m.reasoning_content is string %}"
        "{%- set thought = m.reasoning_content %}{%- elif '</think>' in content %}"
        "{%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}"
        "{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}"
        "{%- if loop.index0 > ns.last and (loop.last or (not loop.last and thought)) %}"
        "{{- '<|im_start|>' + m.role + '\n<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content }}"
        "{%- else %}{{- '<|im_start|>' + m.role + '\n' + content }}{%- endif %}{%- if m.tool_calls %}"
        "{%- for c in m.tool_calls %}{%- if (loop.first and content) or not loop.first %}{{- '\n' }}{%- endif %}"
        "{%- if c.function %}{%- set c = c.function %}{%- endif %}{{- c.name }}{%- if c.arguments is string %}"
        "{{- c.arguments }}{%- else %}{{- c.arguments | tojson }}{%- endif %}{%- endfor %}{%- endif %}"
        "{{- '<|im_end|>\n' }}{%- elif m.role == 'tool' %}{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}"
        "{{- '<|im_start|>user' }}{%- endif %}{{- content }}{%- if loop.last or (messages[loop.index0 + 1].role != 'tool') %}"
        "{{- '<|im_end|>\n' }}{%- endif %}{%- else %}{{- '<|im_start|>' + m.role + '\n' + content + '<|im_end|>\n' }}"
        "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
        "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think></think>' }}{%- endif %}{%- endif %}"
    ),
    "a macro for types": (
        "{%- macro argument(value, quote=true) -%}{%- if value is string -%}{{- '\"' + value + '\"' if quote else value -}}"
        "{%- elif value is boolean -%}{{- 'true' if value else 'false' -}}{%- elif value is mapping -%}{{- '{' -}}"
        "{%- for k, v in value | dictsort -%}{{- k -}}:{{- argument(v, quote=quote) -}}{%- if not loop.last %},{% endif -%}"
        "{%- endfor -%}{{- '}' -}}{%- elif value is sequence -%}[{%- for v in value -%}{{- argument(v) -}}"
        "{%- if not loop.last %},{% endif -%}{%- endfor -%}]{%- else -%}{{- value -}}{%- endif -%}{%- endmacro -%}"
        "{%- set users = messages | selectattr('role', 'equalto', 'user') | list -%}{{ users|length }}"
        "{% for m in messages if m.role != 'system' %}{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
        "{{ '<start_of_turn>' ~ role ~ '\n' ~ (m.content|default('', true)|trim) }}{{ m == users[-1] }}"
        "{{ argument(m) }}{{ m.get('tool_calls', [])|map(attribute='function')|map(attribute='name')|join(', ') }}"
        "{{ loop.index }}{{ loop.length }}{% endfor %}{{ argument([1, 2.5, none, true, {'b': 'x', 'a': [1]}]) }}"
        "{{ strftime_now('%Y')|int > 2000 }}{{ messages|map(attribute='role')|unique|list }}{{ 'Abc'[1:] | upper }}"
        "{{ (messages|first).role }}{{ (messages|last)['role'] }}{{ tools|length if tools else 0 }}{{ 3 // 2 }}"
    ),
    "printed values": (
        "{{ messages[0] }}{{ messages|length * 2 - 1 }}{{ [1, 'a', none] }}{{ {'a': (1, 2)} }}{{ 1.0 }}{{ 7 / 2 }}{{ -3 }}"
        "{{ nothing }}{{ 'a\nb'|indent(2) }}{{ ' x '|trim }}{{ 'x'|title }}{{ ['b', 'A']|sort|join('') }}{{ 'a' 'b' }}"
        "{% set x %}in {{ 1 }}{% endset %}{{ x }}{% filter upper %}abc{% endfilter %}{{ 'a-b-c'.rsplit('-', 1) }}"
        "{{ 'abc'|reverse }}{{ [3, 1]|max }}{{ [3, 1]|sum }}{{ 'x' if false }}{{ not true }}{{ 1 < 2 < 3 }}{{ 2 ** 3 }}"
        "{{ '%s=%d' % ('a', 3) }}{{ '%s'|format('z') }}{{ '{} {x}'.format(1, x=2) }}{{ 5|string ~ 6 }}{{ '12'|int + 1 }}"
        "{{ 3.7|round|int }}{{ 'a,b'.split(',')|last }}{{ range(3)|list }}{{ {'k': 1}|items|list }}{{ {'k': 1}.keys()|list }}"
        "{% for a in [1, 2, 3] %}{{ loop.cycle('x', 'y') }}{{ loop.previtem }}{% else %}none{% endfor %}{{ joiner(',')() }}"
        "{% for a in [] %}{% else %}empty{% endfor %}{% with y = 5 %}{{ y }}{% endwith %}{{ dict(a=1).a }}{{ 'é'|tojson }}"
    ),
}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "What is 2 + 2?\n"},
    {"role": "assistant", "content": "<think>\nEasy\n</think>\n\n4"},
    {"role": "user", "content": "And in é?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "f", "arguments": {"b": [1], "a": "é"}}}],
    },
    {"role": "tool", "content": "5", "name": "f"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
