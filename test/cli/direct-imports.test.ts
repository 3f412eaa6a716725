/** Imports from room faces become imports from the files that declare the names, line by line. */
import t from 'tap'
import { withDirectImports } from '../../scripts/direct-imports.ts'

const FILES: Readonly<Record<string, string>> = {
  'a/a.ts':
    "/** Face. */\nexport { type Shape, make, makeTwo } from './make.ts'\nexport type { Far } from '../b/b.ts'\n",
  'a/make.ts': 'export function make() {}\n',
  'b/b.ts': "export {\n  type Far,\n  far,\n} from './far.ts'\nexport const near = 1\n",
  'b/far.ts': 'export const far = 1\n',
}
const read = (path: string): string => FILES[path] ?? ''
const direct = (text: string): string => withDirectImports('c/deep/user.ts', text, read)

const ROWS: readonly (readonly [name: string, text: string, expected: string])[] = [
  ['a name', "import { make } from '../../a/a.ts'", "import { make } from '../../a/make.ts'"],
  ['through two faces', "import type { Far } from '../../a/a.ts'", "import type { Far } from '../../b/far.ts'"],
  [
    'names of several files, on as many lines as before',
    "import {\n  far,\n  near,\n} from '../../b/b.ts'\nnext()",
    "import { far } from '../../b/far.ts'; import { near } from '../../b/b.ts'\n\n\n\nnext()",
  ],
  [
    'types beside values load nothing',
    "import { type Far, type Shape, make as other } from '../../a/a.ts'",
    "import type { Far } from '../../b/far.ts'; import { type Shape, make as other } from '../../a/make.ts'",
  ],
  ['what the face declares itself', "import { near } from '../../b/b.ts'", "import { near } from '../../b/b.ts'"],
  ['no face', "import { make } from '../../a/make.ts'", "import { make } from '../../a/make.ts'"],
  ['a package', "import { join } from 'node:path'", "import { join } from 'node:path'"],
  ['what a face gives', "export { make } from '../../a/a.ts'", "export { make } from '../../a/a.ts'"],
]

for (const [name, text, expected] of ROWS) t.test(name, async (t) => t.equal(direct(text), expected))
