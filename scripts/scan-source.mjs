/**
 * Just enough of a TypeScript scanner to find imports and string literals without taking comments or text for them.
 *
 * @typedef {{ text: string, line: number }} Literal  a string or template; `${…}` in a template reads as a blank name
 * @typedef {{ specifier: string, line: number, typeOnly: boolean, lazy: boolean }} Import
 */

/** @returns {{ imports: Import[], literals: Literal[] }} */
export function scanSource(source) {
  const literals = [];
  const code = blankOut(source, literals);
  const lineAt = (index) => source.slice(0, index).split('\n').length;
  const imports = [];
  const add = (index, length, typeOnly, lazy) => {
    // Strings are blanked in `code`, position by position, so the specifier is read from the source.
    const specifier = source.slice(index, index + length);
    imports.push({ specifier, line: lineAt(index), typeOnly, lazy });
  };
  // `import { type A } from` counts as a value: under verbatimModuleSyntax the statement stays and the file is loaded.
  const statement =
    /(?:^|[;\n])[ \t]*(?:import|export)\b(?:(\s+type)\b(?!\s+from))?(?:[^;'"`()]*?\bfrom)?\s*(['"])(\0*)\2/g;
  for (const match of code.matchAll(statement)) {
    add(match.index + match[0].length - 1 - match[3].length, match[3].length, match[1] !== undefined, false);
  }
  for (const match of code.matchAll(/\bimport\s*\(\s*(['"])(\0*)\1/g)) {
    add(match.index + match[0].length - 1 - match[2].length, match[2].length, false, true);
  }
  return { imports, literals: literals.map(({ text, index }) => ({ text, line: lineAt(index) })) };
}

/** The source with comments as spaces and the insides of strings as NUL, each at its old place; collects literals. */
function blankOut(source, literals) {
  const code = source.split('');
  const blank = (from, to, filler) => {
    for (let i = from; i < to; i++) if (code[i] !== '\n') code[i] = filler;
  };
  const endOfString = (start) => {
    let i = start + 1;
    while (i < source.length && source[i] !== source[start] && source[i] !== '\n') i += source[i] === '\\' ? 2 : 1;
    return i;
  };
  const endOfRegex = (start) => {
    let inClass = false;
    for (let i = start + 1; i < source.length && source[i] !== '\n'; i++) {
      if (source[i] === '\\') i++;
      else if (source[i] === '[') inClass = true;
      else if (source[i] === ']') inClass = false;
      else if (source[i] === '/' && !inClass) return i;
    }
    return start;
  };
  // One entry per template we are inside of: its text so far, and how many braces of its `${…}` are open.
  const templates = [];
  const readTemplate = (start) => {
    const template = templates.at(-1);
    let i = start;
    while (i < source.length && source[i] !== '`' && !(source[i] === '$' && source[i + 1] === '{')) {
      i += source[i] === '\\' ? 2 : 1;
    }
    template.text += source.slice(start, i);
    blank(start, i, '\0');
    if (source[i] === '$') {
      template.text += 'x';
      template.open = 1;
      return i + 2;
    }
    literals.push({ text: template.text, index: template.index });
    templates.pop();
    return i + 1;
  };
  const regexMayStart = (index) => {
    const before = source.slice(Math.max(0, index - 40), index).trimEnd();
    return before === '' || /(?:[(,=:[!&|?{};+\-*%<>~^]|\b(?:return|typeof|case|in|of|void|await))$/.test(before);
  };

  let i = 0;
  while (i < source.length) {
    const char = source[i];
    if (char === '/' && source[i + 1] === '/') {
      const end = source.indexOf('\n', i) === -1 ? source.length : source.indexOf('\n', i);
      blank(i, end, ' ');
      i = end;
    } else if (char === '/' && source[i + 1] === '*') {
      const end = source.indexOf('*/', i + 2) === -1 ? source.length : source.indexOf('*/', i + 2) + 2;
      blank(i, end, ' ');
      i = end;
    } else if (char === "'" || char === '"') {
      const end = endOfString(i);
      literals.push({ text: source.slice(i + 1, end), index: i });
      blank(i + 1, end, '\0');
      i = end + 1;
    } else if (char === '`') {
      templates.push({ text: '', index: i, open: 0 });
      i = readTemplate(i + 1);
    } else if (char === '/' && regexMayStart(i)) {
      const end = endOfRegex(i);
      blank(i + 1, end, '\0');
      i = end + 1;
    } else {
      const template = templates.at(-1);
      if (template && char === '{') template.open++;
      if (template && char === '}' && --template.open === 0) {
        i = readTemplate(i + 1);
        continue;
      }
      i++;
    }
  }
  return code.join('');
}
