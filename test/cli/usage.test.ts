import type { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { alertThresholdDefaults } from '../../src/alerts/rules.ts';
import { createProgram } from '../../src/cli/program.ts';
import { Settings } from '../../src/cli/settings.ts';
import { fakeTerminal, runHere } from './fake-terminal.ts';
import { jsonError, projectFolder, runCli } from './run-cli.ts';

function everyCommand(command: Command): Command[] {
  return [command, ...command.commands.flatMap(everyCommand)];
}

function nameOf(command: Command): string {
  return command.parent ? `${nameOf(command.parent)} ${command.name()}` : command.name();
}

describe('help', () => {
  const commands = everyCommand(createProgram(fakeTerminal({ cwd: '/' }).terminal));

  it('knows every command of the design', () => {
    expect(commands.map(nameOf).sort()).toEqual(
      [
        'postcommit',
        ...['init', 'migrate', 'sql', 'relay', 'status', 'events', 'replay', 'demo', 'dead'].map(
          (c) => `postcommit ${c}`,
        ),
        ...['queues', 'destinations', 'forget'].map((c) => `postcommit ${c}`),
        ...['list', 'pause', 'resume'].flatMap((c) => [`postcommit queues ${c}`, `postcommit destinations ${c}`]),
        ...[
          'alerts',
          'completion',
          'doctor',
          'grants',
          'prune',
          'partitions',
          'requeue-unqueued',
          'audit',
          'dashboard',
        ].map((c) => `postcommit ${c}`),
        'postcommit schedules',
        'postcommit schema',
        'postcommit schema check',
        'postcommit schema docs',
        'postcommit schema types',
        ...['list', 'pause', 'resume', 'trigger', 'remove'].map((c) => `postcommit schedules ${c}`),
        ...['list', 'convert', 'rotate', 'drop'].map((c) => `postcommit partitions ${c}`),
        ...['list', 'make-due', 'cancel'].map((c) => `postcommit events ${c}`),
        ...['list', 'show', 'retry', 'discard', 'edit'].map((c) => `postcommit dead ${c}`),
      ].sort(),
    );
  });

  it('has one name, one unit and one default for a threshold, whatever the command', () => {
    const flags = commands.flatMap((command) =>
      command.options.map(({ long, description }) => ({ command, long, description })),
    );
    const longs = flags.map(({ long }) => long ?? '');
    expect(longs.filter((long) => /^--(max|min)-|-seconds-(max|min)$/.test(long))).toEqual([]);
    const ages = flags.filter(({ description }) => description.includes('been due'));
    expect(ages.map(({ command, long }) => `${nameOf(command)} ${long}`).sort()).toEqual(
      ['alerts', 'doctor', 'status'].map((name) => `postcommit ${name} --oldest-pending-ms-max`),
    );
    const defaults = ages.map(({ description }) => /default: (\d+)/.exec(description)?.[1]).filter(Boolean);
    expect(defaults).toEqual(['300000', '300000']);
    expect(alertThresholdDefaults.oldestPendingMsMax).toBe(300_000);
  });

  it.each(commands.map((command) => [nameOf(command)]))('of `%s` has examples that it understands', async (name) => {
    const path = name.split(' ').slice(1);
    const { code, stdout, stderr } = await runHere([...path, '--help']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toContain('--database-url');
    const examples = stdout.split('Examples:\n')[1]?.match(/postcommit .*/g) ?? [];
    expect(examples.length).toBeGreaterThan(0);
    // An example with an option that was renamed since would be worse than none.
    for (const example of examples) {
      const known =
        path.length === 0
          ? commands
          : commands.filter((command) => nameOf(command) === name || nameOf(command).startsWith(`${name} `));
      const flags = example.match(/--[a-z-]+/g) ?? [];
      const all = [...known, commands[0]].flatMap((command) => command?.options.map(({ long }) => long) ?? []);
      expect(all).toEqual(expect.arrayContaining(flags));
    }
  });

  it('of a noun lists without a command', () => {
    const hasChildren = commands.filter((command) => command.parent && command.commands.length > 0);
    // Schemas are files of the project, not rows of the outbox.
    const nouns = hasChildren.filter((command) => command.name() !== 'schema');
    expect(nouns.map((command) => command.name()).sort()).toEqual(
      ['dead', 'destinations', 'events', 'partitions', 'queues', 'schedules'].sort(),
    );
    for (const noun of nouns) expect(noun.helpInformation()).toMatch(/\n {2}list .*\(default\)/s);
  });

  it.each(['make-due', 'cancel'])('of `events %s` has no options of lists', async (name) => {
    const { stdout } = await runHere(['events', name, '--help']);
    expect(stdout).toContain('--aggregate');
    expect(stdout).not.toMatch(/--(status|order|limit|after)\b/);
  });

  it('documents the exit codes', async () => {
    const { stdout } = await runHere(['--help']);
    expect(stdout).toMatch(/Exit codes:\n {2}0 .*\n {2}1 .*\n {2}2 .*\n {2}3 .*\n {2}4 /);
  });
});

describe('mistakes on the command line', () => {
  it('are refused by the real program, with a suggest', async () => {
    const [bogus, typo] = await Promise.all([runCli(['relay', '--bogus']), runCli(['relais'])]);
    expect(bogus).toMatchObject({ code: 2, stdout: '' });
    expect(bogus.stderr).toContain("'--bogus'");
    expect(bogus.stderr).toMatch(/Valid options: .*--once.*postcommit relay --help/s);
    expect(typo).toMatchObject({ code: 2, stdout: '' });
    expect(typo.stderr).toContain('Did you mean relay?');
  });

  it.each([
    [['relay', '--log-levl', 'info'], 'Did you mean --log-level?'],
    [['status', '--databse-url', 'postgres://u:secret@h/d'], 'Did you mean --database-url?'],
    [['dead', 'lst'], 'Did you mean list?'],
    [['dead', 'delete'], 'Valid commands: list, show, retry, discard'],
    [[], 'Valid commands: init, migrate'],
    [['sql', 'extra'], 'Too many arguments'],
    [['partitions', 'rotate', 'extra'], 'Too many arguments'],
    [['dead', 'show'], "Missing required argument 'id'"],
    [['pause', 'kafka'], "Unknown command 'pause'"],
    [['destinations', 'pause'], "Missing required argument 'destination'"],
    [['destinations', 'resume'], "Missing required argument 'destination'"],
    [['forget'], "Missing required argument 'target'"],
    [['destinations', 'resume', 'kafka', '--reason', 'x'], "'--reason'"],
    [['destinations', 'pause', 'kafka', '--wy', 'x'], 'Did you mean --why?'],
    [['destinations', 'kafka'], "Unknown command 'kafka'. Valid commands: list, pause, resume"],
    [['queues', 'pasue', 'reports'], 'Did you mean pause?'],
    [['schedules', 'pause'], "Missing required argument 'name'"],
    [['schedules', 'resume', 'a', '--reason', 'x'], "'--reason'"],
    [['schedules', 'trigger', 'a', '--wait-ms', '-1'], 'whole number from 0 to 600000'],
    [['schedules', 'triger'], 'Did you mean trigger?'],
    [['postgres://u:secret@h/d'], 'Unknown command'],
    [['status', '--pending-max', '1.5'], 'whole number from 0'],
    [['status', '--dead-letters-max', '-1'], 'whole number from 0'],
    [['events', '--limit', '0'], 'whole number from 1 to 1000'],
    [['events', '--from', 'yesterday'], '2h, 30m or 7d ago'],
    [['events', '--status', 'sentt'], 'PENDING, PROCESSING, SENT, FAILED'],
    [['events', '--aggregate', ':42'], 'type:id'],
    [['events', '7', '--limit', '3'], '--limit cannot be combined with an id'],
    [['relay', '--in-flight-max', 'nope'], 'whole number from 1'],
    [['relay', '--poison', 'ignore'], 'Allowed choices are skip, block'],
    [['relay', '--log-level', 'loud'], 'Allowed choices are debug'],
    [['init', '--format', 'yaml'], 'Allowed choices are ts, js, json'],
    [['dead', 'retry'], '--all'],
    [['dead', 'discard'], '--all'],
    [['events', 'make-due'], '--all'],
    [['events', 'cancel'], '--all'],
    [['events', 'cancel', '7', '--type', 'a'], 'one of the three'],
    [['events', 'cancel', '7', '--limit', '3'], "Unknown option '--limit'"],
    [['events', 'make-due', '7', '--reason', 'x'], "'--reason'"],
    [['replay'], '--all'],
    [['dead', 'discard', '--all', '--type', 'a'], 'one of the three'],
    [['replay', '7', '--all'], 'one of the three'],
  ])('%j', async (args, what) => {
    const text = await runHere(args);
    expect(text).toMatchObject({ code: 2, stdout: '' });
    expect(text.stderr).toContain(what);
    const json = await runHere([...args, '--json']);
    expect(json).toMatchObject({ code: 2, stdout: '' });
    expect(jsonError(json).message).toContain(what);
    expect(jsonError(json).code).toMatch(/^POSTCOMMIT_E_/);
    expect(text.stderr + json.stderr).not.toContain('secret');
  });
});

describe('settings', () => {
  const config = "export default { connectionString: 'postgres://file/db', schema: 'from_file' };";
  const settingsOf = (options: ConstructorParameters<typeof Settings>[0], env: Record<string, string>) =>
    new Settings(options, fakeTerminal({ env, cwd: projectFolder({ 'postcommit.config.mjs': config }) }).terminal);
  const env = { DATABASE_URL: 'postgres://env/db', POSTCOMMIT_SCHEMA: 'from_env' };

  it('come from flags first, then the environment, then the config file', async () => {
    const flags = settingsOf({ databaseUrl: 'postgres://flag/db', schema: 'from_flag' }, env);
    expect([await flags.connection(), await flags.schema()]).toEqual([
      { connectionString: 'postgres://flag/db' },
      'from_flag',
    ]);
    const environment = settingsOf({}, env);
    expect([await environment.connection(), await environment.schema()]).toEqual([
      { connectionString: 'postgres://env/db' },
      'from_env',
    ]);
    const file = settingsOf({}, { DATABASE_URL: '', POSTCOMMIT_SCHEMA: '' });
    expect([await file.connection(), await file.schema()]).toEqual([
      { connectionString: 'postgres://file/db' },
      'from_file',
    ]);
  });

  it('take connection from the config file, for DATABASE_URL too, but not for --database-url', async () => {
    const withPassword = "export default { connection: { password: () => 'secret' }, schema: 's' };";
    const cwd = projectFolder({ 'postcommit.config.mjs': withPassword });
    const settings = (flags: object, env: Record<string, string>) =>
      new Settings(flags, fakeTerminal({ env, cwd }).terminal).connection();
    const connection = { password: expect.any(Function) };
    expect(await settings({}, env)).toEqual({ connectionString: 'postgres://env/db', connection });
    expect(await settings({ databaseUrl: 'postgres://flag/db' }, env)).toEqual({
      connectionString: 'postgres://flag/db',
    });
    const twice = settings({}, { DATABASE_URL: 'postgres://app:other@env/db' });
    await expect(twice).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_BAD_OPTION',
      message: expect.stringMatching(/DATABASE_URL: .*take password out of connection/),
    });
    await expect(settings({}, {})).rejects.toThrow(/postcommit\.config\.mjs: connection needs host and database/);
  });

  it('do not run the config file when everything is named without it', async () => {
    const cwd = projectFolder({ 'postcommit.config.mjs': "throw new Error('must not run');" });
    const settings = new Settings({ databaseUrl: 'postgres://flag/db', schema: 'x' }, fakeTerminal({ cwd }).terminal);
    expect([await settings.connection(), await settings.schema()]).toEqual([
      { connectionString: 'postgres://flag/db' },
      'x',
    ]);
  });

  it.each(['postgres://app:sec#ret@db/shop', 'mysql://app:secret@db/shop', 'app:secret@db', 'not a url', ''])(
    'refuse the connection string %j without repeating it',
    async (databaseUrl) => {
      const { code, stderr } = await runHere(['status', '--database-url', databaseUrl]);
      expect(code).toBe(2);
      expect(stderr).toContain('POSTCOMMIT_E_BAD_OPTION');
      expect(stderr).not.toMatch(/sec#?ret/);
    },
  );

  it('refuse a schema name that PostgreSQL would cut off', async () => {
    const { code, stderr } = await runHere(['sql', '--schema', 'x'.repeat(64)]);
    expect(code).toBe(2);
    expect(stderr).toContain('POSTCOMMIT_E_BAD_SCHEMA_NAME');
  });
});

describe('asking before something is hard to undo', () => {
  it.each([
    [['dead', 'discard', '7']],
    [['dead', 'discard', '--all']],
    [['dead', 'retry', '--all']],
    [['dead', 'retry', '--type', 'a']],
    [['replay', '--all']],
    [['replay', '--from', '2h']],
    [['events', 'cancel', '7']],
    [['events', 'make-due', '--type', 'a']],
  ])('%j: no is no', async (args) => {
    for (const typed of ['n\n', '\n', '']) {
      const { code, stderr } = await runHere(args, { typed });
      expect(code).toBe(2);
      expect(stderr).toContain('[y/N]');
      expect(stderr).toContain('nothing was changed');
    }
  });

  it.each([
    [['dead', 'discard', '7']],
    [['dead', 'discard', '--all']],
    [['dead', 'retry', '--all']],
    [['replay', '--all']],
    [['events', 'cancel', '7']],
    [['events', 'make-due', '--all']],
    [['prune', '--older-than', '30d']],
    [['requeue-unqueued']],
    [['partitions', 'drop', '1']],
  ])('%j: without a terminal, or with --json, it needs --yes', async (args) => {
    for (const options of [
      [args, {}],
      [[...args, '--json'], {}],
      [[...args, '--json'], { typed: 'y\n' }],
    ] as const) {
      const { code, stdout, stderr } = await runHere([...options[0]], options[1]);
      expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
      expect(stderr).toContain('POSTCOMMIT_E_USAGE');
      expect(stderr).toContain('Pass --yes to confirm');
      expect(stderr).toContain('nothing was changed');
    }
  });

  it('continues after yes, and with --yes in a script', async () => {
    // It gets as far as missing its database.
    for (const [args, typed] of [
      [[], 'y\n'],
      [['--yes'], ''],
      [['--yes', '--json'], ''],
      [['--yes'], undefined],
    ] as const) {
      const run = await runHere(['dead', 'discard', '--all', ...args], typed === undefined ? {} : { typed });
      expect(run.stderr).toContain('POSTCOMMIT_E_NO_DATABASE_URL');
      expect(run.stderr.includes('[y/N]')).toBe(typed === 'y\n');
    }
  });
});
