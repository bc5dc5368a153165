import type { Command } from 'commander';
import { Argument } from 'commander';
import { completionScript, type Shell, shells } from '../completion.ts';
import { contextOf, examples } from '../context.ts';
import type { Terminal } from '../terminal.ts';

export function addCompletion(program: Command, terminal: Terminal): void {
  program
    .command('completion')
    .summary('write the completion of commands and options for a shell')
    .description('Write a script for bash, zsh or fish that completes commands and options of postcommit.')
    .addArgument(new Argument('<shell>', 'the shell').choices(shells))
    .addHelpText(
      'after',
      examples(
        ['bash', 'completion bash > ~/.local/share/bash-completion/completions/postcommit'],
        ['zsh, in a folder of $fpath', 'completion zsh > ~/.zfunc/_postcommit'],
        ['fish', 'completion fish > ~/.config/fish/completions/postcommit.fish'],
      ),
    )
    .action((shell: Shell, _flags: object, command: Command) => {
      const script = completionScript(program, shell);
      contextOf(command, terminal).output.show({ shell, script }, () => terminal.stdout.write(script));
    });
}
