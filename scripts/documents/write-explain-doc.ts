/** `npm run docs:explain`: writes docs/explain.md, and the schema of what `sealane explain -o json` prints. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { explainDocument, explainSchema } from './explain-document.ts'

const DOCS = join(import.meta.dirname, '..', '..', 'docs')

mkdirSync(join(DOCS, 'schemas'), { recursive: true })
writeFileSync(join(DOCS, 'explain.md'), explainDocument())
writeFileSync(join(DOCS, 'schemas', 'explain.json'), explainSchema())
