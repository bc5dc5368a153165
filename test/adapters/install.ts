// Installs what the tests of this folder import. In the background before the tests run (global-setup.ts), and before each
// test file, which waits for what is not there yet.
import { installPackages } from '../../scripts/private-packages.ts';
import { generatePrisma } from './generate-prisma.ts';

const here = new URL('./', import.meta.url);
const prisma6 = new URL('prisma6/', here);
installPackages(here, 'the database clients for the tests of adapters');
installPackages(prisma6, 'Prisma 6 for the tests of adapters');
installPackages(new URL('mikro-orm7/', here), 'MikroORM 7 for the tests of adapters');
installPackages(new URL('typeorm03/', here), 'TypeORM 0.3 for the tests of adapters');
installPackages(new URL('migrators/', here), 'migration tools for the tests of adapters');
generatePrisma(new URL('prisma7/', here), here);
generatePrisma(prisma6, prisma6);
