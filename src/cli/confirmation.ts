import { createInterface } from 'node:readline/promises';
import { PostcommitError } from '../errors.ts';
import type { Context } from './context.ts';

/** Asks before a change that is hard to undo, unless --yes is given. Fails without a terminal, and with --json. */
export async function confirm({ terminal, output }: Context, question: string, yes: boolean): Promise<void> {
  if (yes) return;
  if (output.json || !terminal.stdin.isTTY) {
    const why = output.json ? '--json does not ask' : 'there is no terminal to ask on';
    throw new PostcommitError(
      'POSTCOMMIT_E_USAGE',
      `Pass --yes to confirm: ${why}, so nothing was changed. The question is: ${question}`,
    );
  }
  const prompt = createInterface({ input: terminal.stdin, output: terminal.stderr });
  const answer = await Promise.race([
    prompt.question(`${question} [y/N] `),
    new Promise<string>((resolve) => prompt.once('close', () => resolve(''))),
  ]);
  prompt.close();
  if (!/^y(es)?$/i.test(answer.trim())) {
    throw new PostcommitError(
      'POSTCOMMIT_E_USAGE',
      'Not confirmed, so nothing was changed. Pass --yes to skip the question.',
    );
  }
}
