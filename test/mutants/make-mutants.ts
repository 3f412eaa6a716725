/** Makes mutants of a source file: each has one small change, like a slip of the hand. */
import ts from 'typescript'

export interface Mutant {
  /** The path from the root. */
  readonly file: string
  /** The line number, from 1. */
  readonly line: number
  readonly kind: Kind
  /** The position of the replaced text. */
  readonly start: number
  readonly end: number
  readonly was: string
  readonly becomes: string
}

export type Kind =
  | 'negated condition'
  | 'boundary'
  | 'equality'
  | 'and, or'
  | 'plus, minus'
  | 'true, false'
  | 'number'
  | 'min, max'
  | 'dropped filter'
  | 'empty list'
  | 'removed exit'
  | 'removed statement'

const OPERATORS: Readonly<Partial<Record<ts.SyntaxKind, readonly [kind: Kind, becomes: string]>>> = {
  [ts.SyntaxKind.LessThanToken]: ['boundary', '<='],
  [ts.SyntaxKind.LessThanEqualsToken]: ['boundary', '<'],
  [ts.SyntaxKind.GreaterThanToken]: ['boundary', '>='],
  [ts.SyntaxKind.GreaterThanEqualsToken]: ['boundary', '>'],
  [ts.SyntaxKind.EqualsEqualsEqualsToken]: ['equality', '!=='],
  [ts.SyntaxKind.ExclamationEqualsEqualsToken]: ['equality', '==='],
  [ts.SyntaxKind.AmpersandAmpersandToken]: ['and, or', '||'],
  [ts.SyntaxKind.BarBarToken]: ['and, or', '&&'],
  [ts.SyntaxKind.PlusToken]: ['plus, minus', '-'],
  [ts.SyntaxKind.MinusToken]: ['plus, minus', '+'],
}

/** A call of these methods mostly returns a list; where it does not, the mutant does not type-check. */
const LISTS = new Set(['map', 'flatMap', 'filter', 'concat', 'slice', 'sort', 'toSorted', 'toReversed', 'reverse'])

/** All mutants of a file, in its order. It does not check whether they type-check. */
export function makeMutants(file: string, text: string): Mutant[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true)
  const mutants: Mutant[] = []
  const add = (kind: Kind, node: ts.Node, becomes: string, start = node.getStart(source)): void => {
    const end = node.getEnd()
    const line = source.getLineAndCharacterOfPosition(start).line + 1
    mutants.push({ file, line, kind, start, end, was: text.slice(start, end), becomes })
  }
  const visit = (node: ts.Node): void => {
    if (ts.isTypeNode(node) || ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) return
    if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) return
    mutate(node, add)
    ts.forEachChild(node, visit)
  }
  visit(source)
  return mutants.sort((a, b) => a.start - b.start || a.end - b.end)
}

type Add = (kind: Kind, node: ts.Node, becomes: string) => void

function mutate(node: ts.Node, add: Add): void {
  if (ts.isBinaryExpression(node)) {
    const found = OPERATORS[node.operatorToken.kind]
    const [left, right] = [node.left.getText(), node.right.getText()]
    if (found !== undefined) add(found[0], node, `${left} ${found[1]} ${right}`)
  }
  const condition = conditionOf(node)
  if (condition !== undefined) add('negated condition', condition, negated(condition))
  if (node.kind === ts.SyntaxKind.TrueKeyword) add('true, false', node, 'false')
  if (node.kind === ts.SyntaxKind.FalseKeyword) add('true, false', node, 'true')
  if (ts.isNumericLiteral(node)) add('number', node, String(Number(node.text) + 1))
  if (ts.isBigIntLiteral(node)) add('number', node, `${BigInt(node.text.slice(0, -1)) + 1n}n`)
  if (ts.isPropertyAccessExpression(node) && node.expression.getText() === 'Math') {
    if (node.name.text === 'min') add('min, max', node, 'Math.max')
    if (node.name.text === 'max') add('min, max', node, 'Math.min')
  }
  if (ts.isCallExpression(node) && calledName(node) === 'filter') {
    add('dropped filter', node, (node.expression as ts.PropertyAccessExpression).expression.getText())
  }
  const given = givenBack(node)
  if (given !== undefined && isList(given)) add('empty list', given, '[]')
  if (isExit(node)) add('removed exit', node, ';')
  if (ts.isExpressionStatement(node)) add('removed statement', node, ';')
}

/** The condition of an `if`, a loop or a `? :`. */
function conditionOf(node: ts.Node): ts.Expression | undefined {
  const condition = ts.isConditionalExpression(node)
    ? node.condition
    : ts.isIfStatement(node) || ts.isWhileStatement(node)
      ? node.expression
      : undefined
  // The negation of an equality equals the mutant of its operator.
  if (condition === undefined || !ts.isBinaryExpression(condition)) return condition
  return OPERATORS[condition.operatorToken.kind]?.[0] === 'equality' ? undefined : condition
}

function negated(condition: ts.Expression): string {
  if (ts.isPrefixUnaryExpression(condition) && condition.operator === ts.SyntaxKind.ExclamationToken) {
    return condition.operand.getText()
  }
  return `!(${condition.getText()})`
}

/** The value that a `return` or the body of an arrow function returns. */
function givenBack(node: ts.Node): ts.Expression | undefined {
  if (ts.isReturnStatement(node)) return node.expression
  return ts.isArrowFunction(node) && !ts.isBlock(node.body) ? node.body : undefined
}

function isList(node: ts.Expression): boolean {
  if (ts.isArrayLiteralExpression(node)) return node.elements.length > 0
  return ts.isCallExpression(node) && LISTS.has(calledName(node))
}

function calledName(node: ts.CallExpression): string {
  return ts.isPropertyAccessExpression(node.expression) ? node.expression.name.text : ''
}

/** Whether this is an `if` without `else` that only leaves the function, the loop or this turn of it. */
function isExit(node: ts.Node): boolean {
  if (!ts.isIfStatement(node) || node.elseStatement !== undefined) return false
  const then = node.thenStatement
  const only = ts.isBlock(then) ? (then.statements.length === 1 ? then.statements[0] : undefined) : then
  return (
    only !== undefined &&
    (ts.isReturnStatement(only) || ts.isThrowStatement(only) || ts.isBreakOrContinueStatement(only))
  )
}

/** The text of the file with that one change. */
export function applyMutant(text: string, { start, end, becomes }: Mutant): string {
  return text.slice(0, start) + becomes + text.slice(end)
}

/** The replaced and the new text, each on one line; of long ones, the place where they differ. */
export function describeMutant({ was, becomes }: Mutant): string {
  const [from, to] = [was, becomes].map((text) => text.replace(/\s+/g, ' ')) as [string, string]
  let same = 0
  while (same < from.length && from[same] === to[same]) same += 1
  const begin = Math.max(0, same - 30)
  const part = (text: string): string => {
    const end = begin + 60
    return `\`${begin > 0 ? '…' : ''}${text.slice(begin, end)}${end < text.length ? '…' : ''}\``
  }
  return `${part(from)} -> ${becomes === ';' ? 'removed' : part(to)}`
}
