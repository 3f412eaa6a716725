/** `npm run docs:reasons`: writes docs/reasons.md from the table of reasons. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { reasonsDocument } from './reasons-document.ts'

writeFileSync(join(import.meta.dirname, '..', '..', 'docs', 'reasons.md'), reasonsDocument())
