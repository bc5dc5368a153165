import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { Option } from 'commander';
import type { PartitionChoice } from '../../database/migrate-options.ts';
import { partitionChoices } from '../../database/migrate-options.ts';
import { PostcommitError } from '../../errors.ts';
import { configNames } from '../config.ts';
import { configTemplateOf, configTemplates } from '../config-templates.ts';
import { contextOf, examples } from '../context.ts';
import type { Terminal } from '../terminal.ts';

interface InitOptions {
  format: keyof typeof configTemplates;
  force?: boolean;
  partitions?: PartitionChoice;
}

export function addInit(program: Command, terminal: Terminal): void {
  program
    .command('init')
    .summary('write a config file')
    .description('Write a commented postcommit.config.ts into the current folder. An existing file is not overwritten.')
    .addOption(new Option('--format <format>', 'file format').choices(Object.keys(configTemplates)).default('ts'))
    .option('--force', 'overwrite an existing file')
    .addOption(
      new Option('--partitions <unit>', 'how `postcommit migrate` partitions the log of a new outbox').choices(
        partitionChoices,
      ),
    )
    .addHelpText(
      'after',
      examples(
        ['TypeScript', 'init'],
        ['plain JavaScript', 'init --format js'],
        ['for millions of events a day', 'init --partitions day'],
      ),
    )
    .action((options: InitOptions, command: Command) => {
      const { output, settings } = contextOf(command, terminal);
      const name = `postcommit.config.${options.format}`;
      const file = join(terminal.cwd, name);
      const existing = configNames.find((each) => existsSync(join(terminal.cwd, each)));
      if (existing !== undefined && !options.force) {
        throw new PostcommitError(
          'POSTCOMMIT_E_USAGE',
          `${existing} already exists. Pass --force to write ${name} anyway.`,
        );
      }
      const place = configNames.indexOf(name);
      const preferred = configNames.slice(0, place).find((each) => existsSync(join(terminal.cwd, each)));
      if (preferred !== undefined) {
        throw new PostcommitError(
          'POSTCOMMIT_E_USAGE',
          `${preferred} is read before ${name}, so ${name} would never be read. Remove ${preferred} first.`,
        );
      }
      const ignored = configNames.slice(place + 1).filter((each) => existsSync(join(terminal.cwd, each)));
      const text = configTemplateOf(options.format, {
        schema: settings.schemaToWrite(),
        partitions: options.partitions,
      });
      writeFileSync(file, text, { flag: options.force ? 'w' : 'wx' });
      const next = [
        options.format === 'json'
          ? 'write handlers.js, which the config file imports, with a handler for each type that your service emits'
          : `edit ${name}: a handler for each type that your service emits`,
        'set DATABASE_URL, e.g. export DATABASE_URL=postgres://user:password@localhost:5432/app',
        'npx postcommit migrate   creates the tables',
        'npx postcommit relay     delivers what your service emits',
        'npx postcommit status    shows backlog, relays and dead letters',
      ];
      output.show({ file, ignored, next }, () => {
        output.line(`${output.paint.green('wrote')} ${file}`);
        if (ignored.length > 0) {
          output.line(output.paint.yellow(`no longer read, because ${name} comes first: ${ignored.join(', ')}`));
        }
        output.line('Next:');
        for (const [index, step] of next.entries()) output.line(`  ${index + 1}. ${output.repeatFlags(step)}`);
      });
    });
}
