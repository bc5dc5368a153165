import { expect, test } from 'vitest';
import { prettyLine } from '../../src/cli/pretty-line.ts';
import { createOutbox, fromPg } from '../../src/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { projectFolder, runCli } from './run-cli.ts';

const plain = prettyLine(false);

test('a line for people has the time, the level, the message and the fields, the error last', () => {
  const line = plain('warn', 'delivery failed, will retry', { error: 'no such card', attempt: 2, suppressed: 0 });
  expect(line).toMatch(
    /^\d\d:\d\d:\d\d\.\d{3} {2}warn {3}delivery failed, will retry {2}attempt=2 error="no such card"$/,
  );
  expect(plain('info', 'relay started', {})).toMatch(/ {2}relay started$/);
  expect(plain('error', 'x', { suppressed: 3, none: undefined, empty: '', list: [1] })).toMatch(
    / {2}suppressed=3 empty="" list=\[1\]$/,
  );
});

test('a stack is below the line, without what repeats the error', () => {
  const stack = 'TypeError: no\n    at handle (file:///app/handlers.js:3:9)\n    at run (file:///app/\x1b[2Jx.js:1:1)';
  const [line, ...frames] = plain('warn', 'delivery failed, will retry', { error: 'TypeError: no', stack }).split('\n');
  expect(line).toMatch(/ {2}error="TypeError: no"$/);
  expect(frames).toEqual(['    at handle (file:///app/handlers.js:3:9)', '    at run (file:///app/\\x1b[2Jx.js:1:1)']);
});

test('hostile texts do not reach the terminal', () => {
  const line = plain('error', 'event is a dead letter', { aggregate_id: '\x1b[2Jgone\nsecond line', '\x1b[1m': 1 });
  expect(line).not.toContain('\x1b');
  expect(line).not.toContain('\n');
  expect(line).toContain('gone');
});

test('colours are used where they are wanted', () => {
  expect(prettyLine(true)('error', 'broken', {})).toContain('\x1b[31merror');
  expect(plain('error', 'broken', {})).not.toContain('\x1b');
});

test('postcommit relay --pretty writes such lines, without passwords', async () => {
  const db = await createTestDatabase();
  try {
    const reject = `throw new Reject('see postgres://shop:hunter2@db/shop')`;
    const cwd = projectFolder({
      'postcommit.config.ts': `import { defineConfig, Reject } from 'postcommit';
        export default defineConfig({ handlers: { 'order.created': { refuse: () => { ${reject}; } } } });`,
    });
    const event = { type: 'order.created', aggregate: ['order', '42'] as const, payload: { secret: 'pin' } };
    await createOutbox({ db: fromPg(db.pool) }).transaction((_tx, emit) => emit(event));
    const { code, stdout } = await runCli(['relay', '--once', '--pretty'], { cwd, env: { DATABASE_URL: db.url } });
    expect(code).toBe(0);
    const line = stdout.split('\n').find((each) => each.includes('event is a dead letter')) ?? '';
    expect(line).toMatch(/error {2}event is a dead letter {2}event_id=\S+ event_type=order.created /);
    expect(line).toMatch(/ aggregate_id=42 .* attempt=1 /);
    expect(stdout).not.toMatch(/hunter2|pin|^\{/m);
  } finally {
    await db.close();
  }
});
