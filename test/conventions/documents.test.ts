/** Documents are read in terminals and reviews, where no line may be wider than they are, and name files that exist. */
import { dirname, join } from 'node:path'
import t from 'tap'
import { DOCUMENT_WIDTH } from '../../scripts/documents/wrap-text.ts'
import { sourceFiles } from '../support/source-tree.ts'

/** Turns of phrase that readers did not understand. */
const RIDDLES =
  /\b(unseen is not gone|of the mind|(stands?|stood) back|(who|one that) came last|(of|at) nobody\b(?!')|the one who installs|heard it of)\b/i

const documents = sourceFiles(/\.md$/)

t.test('lines have at most 120 columns, also of tables, examples and what is generated', async (t) => {
  t.ok(documents.length > 50, `${documents.length} documents are looked at`)
  for (const { path, text } of documents) {
    for (const [i, line] of text.split('\n').entries()) {
      const { length } = line
      if (length > DOCUMENT_WIDTH) t.fail(`${path}:${i + 1} has ${length} columns: wrap it, or make the table a list`)
    }
  }
})

t.test('files that a document names are there', async (t) => {
  const files = sourceFiles(/./).map(({ path }) => path)
  let named = 0
  // The changelog says what was.
  for (const { path, text } of documents.filter((document) => document.path !== 'CHANGELOG.md')) {
    for (const [, name = ''] of text.matchAll(/(?<![\w./:*>-])((?:[\w.-]+\/)*[\w-][\w.-]*\.(?:ts|go|proto))\b/g)) {
      named += 1
      if (!isThere(name, path, files)) t.fail(`${path} names ${name}, which is not there`)
    }
  }
  t.ok(named > 100, `${named} names are looked up`)
})

t.test('sentences are no riddles', async (t) => {
  const texts = sourceFiles(/\.(md|ts|go|proto)$/).filter(({ path }) => path !== 'test/conventions/documents.test.ts')
  for (const { path, text } of texts) {
    const found = RIDDLES.exec(text.replaceAll(/\s+(\*|\/\/)?\s*/g, ' '))?.[0]
    if (found !== undefined) t.fail(`${path}: "${found}": say who does what`)
  }
})

/** From the root or from the document's folder; a README may name a file of its component by the end of its path. */
function isThere(name: string, document: string, files: readonly string[]): boolean {
  if (files.includes(name) || files.includes(join(dirname(document), name))) return true
  const [top = ''] = document.split('/')
  const isReadme = document.endsWith('/README.md')
  return files.some((file) => file.endsWith(`/${name}`) && (!isReadme || file.startsWith(`${top}/`)))
}
