/** `npm run docs:security`: writes the second half of docs/security.md from the attacks that are tests. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { securityDocument } from './security-document.ts'

const FILE = join(import.meta.dirname, '..', '..', 'docs', 'security.md')

writeFileSync(FILE, securityDocument(readFileSync(FILE, 'utf8')))
