/**
 * `npm run docs:pictures`: writes docs/pictures: the page of the console in Chromium, and what `sealane explain` prints,
 * both of the example clusters of the tests.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { consolePicture } from './console-picture.ts'
import { explainExample } from './explain-example.ts'

const FOLDER = join(import.meta.dirname, '..', '..', 'docs', 'pictures')

mkdirSync(FOLDER, { recursive: true })
writeFileSync(join(FOLDER, 'explain.txt'), await explainExample())
writeFileSync(join(FOLDER, 'console.png'), await consolePicture())
