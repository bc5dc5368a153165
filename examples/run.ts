// Runs an example by its name: npm run example -- orders-to-kafka
import { existsSync, readdirSync } from 'node:fs';

const names = readdirSync(import.meta.dirname).filter((name) => existsSync(`${import.meta.dirname}/${name}/main.ts`));
const [name = ''] = process.argv.slice(2);
if (names.includes(name)) {
  await import(`./${name}/main.ts`);
} else {
  console.error(`Which one? npm run example -- ${names.join(' | ')}`);
  process.exitCode = 2;
}
