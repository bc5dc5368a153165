import 'reflect-metadata';
import { scenarios } from './scenarios.js';

const name = process.argv[2] ?? '';
const scenario = scenarios[name];
if (!scenario) throw new Error(`there is no scenario ${name}`);
scenario().then(
  () => console.log(JSON.stringify({ what: 'done' })),
  (error: unknown) => {
    console.error(error);
    process.exit(1);
  },
);
