/** `npm run docs:platforms`: writes docs/platforms.md from the detectors' answers to the objects in the tests. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { platformsDocument } from './platforms-document.ts'

writeFileSync(join(import.meta.dirname, '..', '..', 'docs', 'platforms.md'), platformsDocument())
