import { describe, expect, it } from 'vitest';
import { printable, renderTable } from '../../src/cli/output.ts';
import { wantsColour } from '../../src/cli/terminal.ts';
import { duration, quantity } from '../../src/format.ts';
import { suggest } from '../../src/suggest.ts';
import { redact, urlWithoutPassword } from '../../src/telemetry/redaction.ts';

describe('tables', () => {
  it('aligns columns and leaves no blanks at the end', () => {
    expect(
      renderTable(
        ['ID', 'TYPE'],
        [
          ['1', 'order.created'],
          ['1000', 'x'],
        ],
      ),
    ).toEqual(['ID    TYPE', '1     order.created', '1000  x']);
  });

  it('cuts the last column where the terminal ends, and never an id', () => {
    const id = 'x'.repeat(36);
    const [head, line = ''] = renderTable(['ID', 'ERROR'], [[id, 'a long error text, '.repeat(9)]], 90);
    expect(head).toBe(`ID${' '.repeat(36)}ERROR`);
    expect(line).toHaveLength(90);
    expect(line).toMatch(/^x{36} {2}a long .*…$/);
    const [, narrow = ''] = renderTable(['ID', 'ERROR'], [[id, 'e'.repeat(200)]], 20);
    expect(narrow).toBe(`${id}  ${'e'.repeat(39)}…`);
  });

  it('keeps a cell on its line and its escape sequences off the terminal', () => {
    expect(printable('one\ntwo\t\x1b[2Jthree\x9b')).toBe('one ⏎ two \\x1b[2Jthree\\x9b');
    expect(renderTable(['E'], [['\x1b]0;title\x07']]).join('')).not.toContain('\x1b');
  });

  it('writes out what is invisible or turns the direction of the text', () => {
    expect(printable('order\u202e24\u202c')).toBe('order\\u202e24\\u202c');
    const invisible = [
      ...['\u061c', '\u200b', '\u200c', '\u200d', '\u200e', '\u200f', '\u202a', '\u202b', '\u202c', '\u202d', '\u202e'],
      ...['\u2060', '\u2066', '\u2067', '\u2068', '\u2069', '\ufeff', '\u00ad', '\u180e', '\u034f', '\u3164', '\u2028'],
      ...['\u{e0041}', '\ud800', '\u0085'],
    ];
    for (const character of invisible) {
      expect(printable(`a${character}b`), JSON.stringify(character)).toMatch(/^a\\[xu]\{?[0-9a-f]+\}?b$/);
    }
    expect(printable('größe 注文 заказ طلب 🚚')).toBe('größe 注文 заказ طلب 🚚');
  });
});

describe('words for numbers', () => {
  it.each([
    [0, '0 ms'],
    [999, '999 ms'],
    [1_000, '1 s'],
    [59_999, '59 s'],
    [60_000, '1 min'],
    [90_000, '1 min 30 s'],
    [3_600_000, '1 h'],
    [47 * 3_600_000, '47 h'],
    [50 * 3_600_000, '2 d 2 h'],
    [-1_500, '-1 s'],
  ])('%d ms is %s', (ms, text) => {
    expect(duration(ms)).toBe(text);
  });

  it('counts', () => {
    expect([0, 1, 12_345].map((count) => quantity(count, 'event'))).toEqual(['0 events', '1 event', '12,345 events']);
  });
});

describe('passwords', () => {
  it.each([
    ['postgres://app:secret@db:5432/shop', 'postgres://app:***@db:5432/shop'],
    ['at postgresql://app:se@cr@et@db/shop now', 'at postgresql://app:***@db/shop now'],
    ["connectionString: 'postgres://:secret@db/shop',", "connectionString: 'postgres://:***@db/shop',"],
    ['host=db password=secret user=app', 'host=db password=*** user=app'],
    ["host=db password='se cret' user=app", 'host=db password=*** user=app'],
    ['postgres://db/shop?user=app&password=secret&x=1', 'postgres://db/shop?user=app&password=***&x=1'],
    ['two: redis://:secret@a and amqp://u:secret@b', 'two: redis://:***@a and amqp://u:***@b'],
    ['nothing here: see http://localhost:8080/x and a@b.c', 'nothing here: see http://localhost:8080/x and a@b.c'],
    ["at postgres://app:p'w@db/shop now", 'at postgres://app:***@db/shop now'],
    ['postgres://app:p"w`@db/shop', 'postgres://app:***@db/shop'],
    ['postgres://user@corp:secret@db/shop', 'postgres://user@corp:***@db/shop'],
    ["postgres://db/shop?password=p'w&x=1", 'postgres://db/shop?password=***&x=1'],
    ['{"url":"http://a:80/","by":"joe@corp"}', '{"url":"http://a:80/","by":"joe@corp"}'],
  ])('are taken out of %s', (text, clean) => {
    expect(redact(text)).toBe(clean);
  });

  it.each([
    ['postgres://app@db:5432/shop?options=-c%20x', 'postgres://app@db:5432/shop?options=-c%20x'],
    ["postgres://app:p'w@db/shop", 'postgres://app:***@db/shop'],
    ['postgres://app:p w", x@db/shop', 'postgres://app:***@db/shop'],
    ['postgres://user@corp:secret@db/shop', 'postgres://user@corp:***@db/shop'],
    ['postgres://app:a/b?c#d@e@db/shop', 'postgres://app:***@db/shop'],
    ['postgres://app:secret@a:5432,b:5433/shop', 'postgres://app:***@a:5432,b:5433/shop'],
    ['postgres://db/shop?user=app&password=p w\'"&x=1', 'postgres://db/shop?user=app&password=***&x=1'],
    ['postgres://db/shop?%70assword=secret', 'postgres://db/shop?%70assword=***'],
    ['socket:/var/run/?db=shop&password=secret', 'socket:/var/run/?db=shop&password=***'],
    ['/var/run/postgresql shop', '/var/run/postgresql shop'],
    ["host=db password='se cret' user=app", '***'],
  ])('are taken out of the connection string %s', (text, clean) => {
    expect(urlWithoutPassword(text)).toBe(clean);
  });
});

describe('colours', () => {
  it('are for terminals, and not against the wish of NO_COLOR', () => {
    expect(wantsColour({ isTTY: true }, {})).toBe(true);
    expect(wantsColour({ isTTY: true }, { NO_COLOR: '1' })).toBe(false);
    expect(wantsColour({ isTTY: true }, { NO_COLOR: '' })).toBe(true);
    expect(wantsColour({ isTTY: true }, { TERM: 'dumb' })).toBe(false);
    expect(wantsColour({}, {})).toBe(false);
  });
});

describe('suggest', () => {
  const known = ['leaseMs', 'inFlightMax', 'handlers', 'poison'];

  it.each([
    ['leasems', 'leaseMs'],
    ['leaseMS', 'leaseMs'],
    ['inflightMaximum', 'inFlightMax'],
    ['handler', 'handlers'],
    ['posion', 'poison'],
  ])('%s means %s', (word, meant) => {
    expect(suggest(word, known)).toBe(meant);
  });

  it('is nothing when nothing is near', () => {
    expect(suggest('colour', known)).toBeUndefined();
    expect(suggest('x', [])).toBeUndefined();
  });
});
