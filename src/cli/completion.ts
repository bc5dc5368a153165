import type { Command, Option } from 'commander';

export const shells = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof shells)[number];

interface Word {
  name: string;
  description: string;
}

/** What can follow one command. */
interface Place {
  /** The names of the command and its parents without the program: `dead retry`. */
  path: string;
  /** Also the choices of its arguments. */
  commands: Word[];
  options: (Word & { takesValue: boolean; choices: readonly string[] })[];
}

/** The commands and options of a program, as a script for a shell. It runs nothing when the user presses Tab. */
export function completionScript(program: Command, shell: Shell): string {
  const places = placesOf(program);
  const scripts = { bash: bashScript, zsh: zshScript, fish: fishScript };
  return scripts[shell](program.name(), places);
}

function placesOf(program: Command): Place[] {
  const visit = (command: Command, path: string[]): Place[] => {
    const help = command.createHelp();
    const commands = help.visibleCommands(command).filter((each) => each.name() !== 'help');
    const options = [...help.visibleOptions(command), ...(path.length > 0 ? help.visibleGlobalOptions(command) : [])];
    const place: Place = {
      path: path.join(' '),
      commands: [
        ...commands.map((each) => ({ name: each.name(), description: each.summary() || each.description() })),
        ...command.registeredArguments.flatMap(({ argChoices = [], description }) =>
          argChoices.map((name) => ({ name, description })),
        ),
      ],
      options: options.flatMap(optionWord),
    };
    return [place, ...commands.flatMap((each) => visit(each, [...path, each.name()]))];
  };
  return visit(program, []);
}

function optionWord(option: Option): Place['options'] {
  if (!option.long) return [];
  // An optional value is rarely given: after such an option other words are completed.
  const takesValue = option.required;
  return [{ name: option.long, description: option.description, takesValue, choices: option.argChoices ?? [] }];
}

/** A text in single quotes of a POSIX shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The places that are reached by one more word: `dead` and then `retry`. */
function stepPatterns(places: readonly Place[]): string {
  return places
    .filter(({ path }) => path !== '')
    .map(({ path }) => quoted(path))
    .join(' | ');
}

/** The patterns `path:option` of options that take any value, and of those with choices. */
function valuePatterns(places: readonly Place[]) {
  const all = places.flatMap(({ path, options }) =>
    options.filter(({ takesValue }) => takesValue).map(({ name, choices }) => ({ at: `${path}:${name}`, choices })),
  );
  return {
    free: all.filter(({ choices }) => choices.length === 0).map(({ at }) => quoted(at)),
    chosen: all.filter(({ choices }) => choices.length > 0),
  };
}

/** After an option with a value the shell completes the names of files: the value of some is one. */
function bashScript(name: string, places: readonly Place[]): string {
  const { free, chosen } = valuePatterns(places);
  const words = places.map(({ path, commands, options }) => {
    const names = [...commands, ...options].map((each) => each.name).join(' ');
    return `    ${quoted(path)}) words=${quoted(names)} ;;`;
  });
  const choices = chosen.map(({ at, choices }) => `    ${quoted(at)}) words=${quoted(choices.join(' '))} ;;`);
  return `# Completion of ${name} for bash. Write it into ~/.local/share/bash-completion/completions/${name}
_${name}() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" at='' next words='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    next="\${at:+$at }\${COMP_WORDS[i]}"
    case "$next" in ${stepPatterns(places)}) at="$next" ;; esac
  done
  case "$at" in
${words.join('\n')}
  esac
  case "$at:$previous" in
${choices.join('\n')}
    ${free.join(' | ')}) COMPREPLY=($(compgen -f -- "$current")); return ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o filenames -F _${name} ${name}
`;
}

function zshScript(name: string, places: readonly Place[]): string {
  const { free, chosen } = valuePatterns(places);
  const item = (word: Word) => quoted(`${word.name.replaceAll(':', '\\:')}:${word.description}`);
  const words = places.map(({ path, commands, options }) => {
    const list = [...commands, ...options].map((each) => `        ${item(each)}`).join('\n');
    return `    ${quoted(path)})\n      items=(\n${list}\n      ) ;;`;
  });
  const choices = chosen.map(
    ({ at, choices }) => `    ${quoted(at)}) compadd -- ${choices.map(quoted).join(' ')}; return ;;`,
  );
  return `#compdef ${name}
# Completion of ${name} for zsh. Write it into a file _${name} in a folder of $fpath.
_${name}() {
  local at='' next i
  local -a items
  for ((i = 2; i < CURRENT; i++)); do
    next="\${at:+$at }\${words[i]}"
    case "$next" in ${stepPatterns(places)}) at="$next" ;; esac
  done
  case "$at:\${words[CURRENT-1]}" in
${choices.join('\n')}
    ${free.join(' | ')}) _files; return ;;
  esac
  case "$at" in
${words.join('\n')}
  esac
  _describe ${quoted(name)} items
}
if [ "$funcstack[1]" = "_${name}" ]; then _${name} "$@"; else compdef _${name} ${name}; fi
`;
}

function fishScript(name: string, places: readonly Place[]): string {
  const fishQuoted = (text: string) => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
  const at = (path: string) => `-n ${fishQuoted(`test (__${name}_at) = "${path}"`)}`;
  const lines = places.flatMap(({ path, commands, options }) => [
    ...commands.map((each) => `complete -c ${name} -f ${at(path)} -a ${each.name} -d ${fishQuoted(each.description)}`),
    ...options.map((each) => {
      const value =
        each.choices.length > 0 ? ` -x -a ${fishQuoted(each.choices.join(' '))}` : each.takesValue ? ' -r' : ' -f';
      return `complete -c ${name} ${at(path)} -l ${each.name.slice(2)}${value} -d ${fishQuoted(each.description)}`;
    }),
  ]);
  const paths = places.filter(({ path }) => path !== '').map(({ path }) => fishQuoted(path));
  return `# Completion of ${name} for fish. Write it into ~/.config/fish/completions/${name}.fish
function __${name}_at
  set -l at ''
  for word in (commandline -opc)[2..-1]
    set -l next (string trim -- "$at $word")
    contains -- "$next" ${paths.join(' ')}; and set at "$next"
  end
  echo "$at"
end
${lines.join('\n')}
`;
}
