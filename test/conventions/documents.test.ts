/** Documents are read in terminals and reviews: no line is wider than they are. */
import t from 'tap'
import { DOCUMENT_WIDTH } from '../../scripts/documents/wrap-text.ts'
import { sourceFiles } from '../support/source-tree.ts'

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
