/** `npm run docs:attacks`: writes test/hostile/README.md from the attacks that are tests. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { attacksDocument } from './attacks-document.ts'

writeFileSync(join(import.meta.dirname, '..', '..', 'test', 'hostile', 'README.md'), attacksDocument())
