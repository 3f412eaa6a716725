/** `npm run docs:troubleshooting`: writes the reason codes into docs/troubleshooting.md from their tables. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { troubleshootingDocument } from './troubleshooting-document.ts'

const FILE = join(import.meta.dirname, '..', '..', 'docs', 'troubleshooting.md')

writeFileSync(FILE, troubleshootingDocument(readFileSync(FILE, 'utf8')))
