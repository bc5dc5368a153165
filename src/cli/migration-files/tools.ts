import { PostcommitError } from '../../errors.ts';
import { drizzleFiles } from './drizzle.ts';
import type { FileRequest, Language, MigrationFile } from './migration-file.ts';
import { digitsOf, downBody, literal, named } from './migration-file.ts';

export interface MigrationTool {
  /** Where the tool looks for migrations by default. */
  folder: string;
  /** What it reads by default, where it does not depend on the project. */
  language?: Language;
  files(request: FileRequest): MigrationFile[];
}

/** How each tool wants its migrations. The SQL runs in one transaction with each of them. */
export const migrationTools = {
  prisma: {
    folder: 'prisma/migrations',
    files: ({ migration, at }) => [{ path: `${digitsOf(at)}_postcommit/migration.sql`, text: migration.upAlone }],
  },
  drizzle: { folder: 'drizzle', files: drizzleFiles },
  knex: { folder: 'migrations', files: knexFiles },
  typeorm: { folder: 'src/migrations', files: typeOrmFiles },
  'mikro-orm': { folder: 'migrations', files: mikroOrmFiles },
  // sequelize-cli reads CommonJS.
  sequelize: { folder: 'migrations', language: 'cjs', files: sequelizeFiles },
  kysely: { folder: 'migrations', files: kyselyFiles },
  'node-pg-migrate': { folder: 'migrations', files: nodePgMigrateFiles },
} as const satisfies Record<string, MigrationTool>;

export type ToolName = keyof typeof migrationTools;

export const toolNames = Object.keys(migrationTools) as ToolName[];

function knexFiles(request: FileRequest): MigrationFile[] {
  const { language, migration, at } = request;
  // Knex replaces every question mark by a parameter, except after a backslash, which it removes.
  if (/\\\?/.test(migration.up)) {
    throw new PostcommitError('POSTCOMMIT_E_BAD_SCHEMA_NAME', 'Knex cannot run SQL that contains \\?.');
  }
  const run = (sql: string) => `await knex.raw(${sql});`;
  const up = run(literal(migration.up.replaceAll('?', '\\?')));
  const down = downBody(migration.down?.replaceAll('?', '\\?'), run);
  const path = named(`${digitsOf(at)}_postcommit`, request);
  if (language === 'ts')
    return [{ path, text: `import type { Knex } from 'knex';\n\n${functions('knex: Knex', up, down)}` }];
  return [{ path, text: functions('knex', up, down, language) }];
}

function kyselyFiles(request: FileRequest): MigrationFile[] {
  const { language, migration, at } = request;
  const run = (sql: string) => `await sql.raw(${sql}).execute(db);`;
  const [up, down] = [run(literal(migration.up)), downBody(migration.down, run)];
  const imports = {
    ts: "import { type Kysely, sql } from 'kysely';",
    esm: "import { sql } from 'kysely';",
    cjs: "const { sql } = require('kysely');",
  }[language];
  const parameter = language === 'ts' ? 'db: Kysely<unknown>' : 'db';
  const path = named(`${at.getTime()}_postcommit`, request);
  return [{ path, text: `${imports}\n\n${functions(parameter, up, down, language)}` }];
}

/** The functions `up` and `down`. */
function functions(parameter: string, up: string, down: string, language: Language = 'ts'): string {
  const result = language === 'ts' ? ': Promise<void>' : '';
  const declare = (name: string, body: string) =>
    language === 'cjs'
      ? `exports.${name} = async (${parameter}) => {\n  ${body}\n};\n`
      : `export async function ${name}(${parameter})${result} {\n  ${body}\n}\n`;
  return `${declare('up', up)}\n${declare('down', down)}`;
}

function typeOrmFiles(request: FileRequest): MigrationFile[] {
  const { language, migration, at } = request;
  const run = (sql: string) => `await queryRunner.query(${sql});`;
  // TypeORM sorts migrations by the number at the end of their names.
  const name = `Postcommit${at.getTime()}`;
  const [open, parameter, result] = {
    ts: [
      `import type { MigrationInterface, QueryRunner } from 'typeorm';\n\nexport class ${name} implements MigrationInterface {`,
      'queryRunner: QueryRunner',
      ': Promise<void>',
    ],
    esm: [`export class ${name} {`, 'queryRunner', ''],
    cjs: [`exports.${name} = class ${name} {`, 'queryRunner', ''],
  }[language];
  const text = `${open}
  name = '${name}';

  async up(${parameter})${result} {
    ${run(literal(migration.up))}
  }

  async down(${language === 'ts' && migration.down === undefined ? '' : parameter})${result} {
    ${downBody(migration.down, run)}
  }
}${language === 'cjs' ? ';' : ''}
`;
  return [{ path: named(`${at.getTime()}-Postcommit`, request), text }];
}

function mikroOrmFiles(request: FileRequest): MigrationFile[] {
  const { language, migration, at } = request;
  const run = (sql: string) => `this.addSql(${sql});`;
  const name = `Migration${digitsOf(at)}_postcommit`;
  const [open, method, result] = {
    ts: [
      `import { Migration } from '@mikro-orm/migrations';\n\nexport class ${name} extends Migration {`,
      'override async',
      ': Promise<void>',
    ],
    esm: [
      `import { Migration } from '@mikro-orm/migrations';\n\nexport class ${name} extends Migration {`,
      'async',
      '',
    ],
    cjs: [
      `const { Migration } = require('@mikro-orm/migrations');\n\nexports.${name} = class ${name} extends Migration {`,
      'async',
      '',
    ],
  }[language];
  const text = `${open}
  ${method} up()${result} {
    ${run(literal(migration.up))}
  }

  ${method} down()${result} {
    ${downBody(migration.down, run)}
  }
}${language === 'cjs' ? ';' : ''}
`;
  return [{ path: named(name, request), text }];
}

function sequelizeFiles(request: FileRequest): MigrationFile[] {
  const { language, migration, at } = request;
  // Sequelize opens no transaction around a migration.
  const run = (sql: string) =>
    `await queryInterface.sequelize.transaction((transaction) =>
      queryInterface.sequelize.query(${sql}, { transaction }),
    );`;
  const [head, open, parameter, result] = {
    ts: [
      "import type { QueryInterface } from 'sequelize';\n\n",
      'export default {',
      'queryInterface: QueryInterface',
      ': Promise<void>',
    ],
    esm: ['', 'export default {', 'queryInterface', ''],
    cjs: ["'use strict';\n\n", 'module.exports = {', 'queryInterface', ''],
  }[language];
  const text = `${head}${open}
  async up(${parameter})${result} {
    ${run(literal(migration.up))}
  },

  async down(${parameter})${result} {
    ${downBody(migration.down, run)}
  },
};
`;
  return [{ path: named(`${digitsOf(at)}-postcommit`, request), text }];
}

function nodePgMigrateFiles({ migration, at }: FileRequest): MigrationFile[] {
  const down = migration.down === undefined ? '' : `\n-- Down Migration\n${migration.down}`;
  return [{ path: `${at.getTime()}_postcommit.sql`, text: `-- Up Migration\n${migration.up}${down}` }];
}
