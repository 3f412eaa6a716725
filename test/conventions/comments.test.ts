/** The sources contain no left-over notes and no check that is disabled without a rule. */
import t from 'tap'
import { PRODUCT, isGenerated, sourceFiles } from '../support/source-tree.ts'

const LEFT_OVERS = new RegExp(['TO' + 'DO', 'FIX' + 'ME', 'XX' + 'X', '@ts-' + 'ignore', '\\.on' + 'ly\\('].join('|'))

t.test('no left-overs, no silenced checks without a rule', async (t) => {
  for (const { path, text } of sourceFiles(/\.ts$/).filter(({ path }) => !isGenerated(path))) {
    const line = text.split('\n').find((candidate) => LEFT_OVERS.test(candidate))
    if (line !== undefined) t.fail(`${path}: ${line.trim()}`)
    if (/eslint-disable(-next-line)?\s*(\*\/|$)/m.test(text)) t.fail(`${path}: eslint-disable without a rule`)
  }
})

t.test('every module says what it is for', async (t) => {
  const modules = sourceFiles(/\.ts$/, PRODUCT)
  for (const { path, text } of modules.filter(({ path }) => !isGenerated(path))) {
    if (!/^(#!.*\n)?\/\*\*/.test(text)) t.fail(`${path} does not begin with a comment that says what it is for`)
  }
})
