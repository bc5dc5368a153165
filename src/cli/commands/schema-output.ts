import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { Command } from 'commander';
import { quantity } from '../../format.ts';
import { renderTypes } from '../../schema/typescript-types.ts';
import { readCatalogue } from '../catalogue.ts';
import type { Context } from '../context.ts';
import { contextOf, examples } from '../context.ts';
import type { Terminal } from '../terminal.ts';

export function addTypes(schema: Command, terminal: Terminal): void {
  schema
    .command('types')
    .summary('print TypeScript types of the payloads')
    .description(
      'Print TypeScript types of the payloads, for consumers that do not share the code: one type per event, and EventPayloads, which has them by event type.',
    )
    .option('--out <file>', 'write this file instead')
    .addHelpText('after', examples(['write the types', 'schema types --out events.d.ts']))
    .action(async (flags: { out?: string }, command: Command) => {
      await types(contextOf(command, terminal), flags);
    });
}

async function types(context: Context, { out }: { out?: string }): Promise<void> {
  const { output, terminal } = context;
  const { schemas } = await readCatalogue(context);
  const text = renderTypes(schemas);
  const file = out === undefined ? undefined : resolve(terminal.cwd, out);
  if (file !== undefined) write(file, text);
  const names = Object.keys(schemas.events).sort();
  output.show(file === undefined ? { types: names, text } : { types: names, file }, () => {
    if (file === undefined) output.line(text.trimEnd());
    else output.line(`${output.paint.green('wrote')} ${file}: ${quantity(names.length, 'event type')}`);
  });
}

function write(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}
