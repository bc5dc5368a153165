// As test/adapters/install.ts, whose Prisma these tests use.
import { installPackages } from '../../scripts/private-packages.ts';
import { generatePrisma } from '../adapters/generate-prisma.ts';

const here = new URL('./', import.meta.url);
for (const version of [10, 11, 12]) {
  installPackages(new URL(`nest${version}/`, here), `Nest ${version} for the tests of postcommit/nestjs`);
}
const adapters = new URL('../adapters/', here);
installPackages(adapters, 'the database clients for the tests of adapters');
for (const format of ['commonjs', 'module']) generatePrisma(new URL(`prisma/${format}/`, here), adapters);
