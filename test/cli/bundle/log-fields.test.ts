/** Each field that the code gives a log line is listed for bundles, or is named here as left out. */
import t from 'tap'
import ts from 'typescript'
import { LOG_FIELDS } from '../../../cli/bundle/items.ts'
import { PRODUCT, sourceFiles } from '../../support/source-tree.ts'

/** The field `token` of a join holds the token's name, which a reader of the log may mistake for its secret. */
const LEFT_OUT = ['token']

function fieldsLogged(path: string, text: string): readonly string[] {
  const found: string[] = []
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
      const { name, expression } = node.expression
      const isLogged = /^(debug|info|warn|error|child)$/.test(name.text) && /log(ger)?$/i.test(expression.getText())
      const fields = node.arguments[name.text === 'child' ? 0 : 1]
      if (isLogged && fields !== undefined && ts.isObjectLiteralExpression(fields)) {
        found.push(...fields.properties.flatMap((one) => (one.name === undefined ? [] : [one.name.getText()])))
      }
    }
    ts.forEachChild(node, visit)
  }
  visit(ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true))
  return found
}

t.test('what lines of log are about is let out', async (t) => {
  // Most files log nothing, and to parse them all takes seconds.
  const files = sourceFiles(/\.ts$/, PRODUCT).filter(({ text }) =>
    /log(ger)?\s*\??\.\s*(debug|info|warn|error|child)\b/i.test(text),
  )
  const logged = files.flatMap(({ path, text }) => fieldsLogged(path, text))
  t.ok(logged.length > 200, `${logged.length} fields`)
  const unlisted = new Set(logged.filter((name) => !(name in LOG_FIELDS)))
  t.same([...unlisted].sort(), LEFT_OUT)
})
