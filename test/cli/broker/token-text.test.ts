/**
 * The lines that `sealane token create` prints. They contain the known values, and no command line contains the token.
 */
import t from 'tap'
import { shellWord, targetFlags } from '../../../cli/context/target.ts'
import { type TokenTextInit, tokenText } from '../../../cli/broker/token.ts'

const FILE = "(umask 077; rm -f token.txt; cat > token.txt) <<'EOF'\nsealane1.abc\nEOF\n"

t.test('who joins, as far as it is known', (t) => {
  const at = { context: 'hub' }
  const rows: readonly (readonly [string, Partial<TokenTextInit>, join: string, remark: string])[] = [
    ['a site', { broker: undefined }, '--site site.yaml', ''],
    ['the only other context', { others: ['c1'] }, '--context c1', ''],
    ['one of a file', { broker: { kubeconfig: 'my file' }, others: ['c1'] }, "--kubeconfig 'my file' --context c1", ''],
    ['the cluster it is for', { others: ['c1', 'c2'], cluster: 'c2' }, '--context c2', ''],
    [
      'a context with a path',
      { others: ['arn:aws:eks:x:1:cluster/a b'] },
      "--context 'arn:aws:eks:x:1:cluster/a b'",
      '',
    ],
    ['one of several', { others: ['c1', 'c2'] }, '--context CONTEXT', ', one of c1, c2'],
    ['nobody knows', { others: [] }, '--context CONTEXT', ''],
  ]
  for (const [what, init, join, list] of rows) {
    const text = tokenText({ token: 'sealane1.abc', broker: at, others: [], cluster: undefined, ...init })
    t.equal(text.answer, `${FILE}sealane join ${join} --token-file token.txt\n`, what)
    const fromFile = { token: 'sealane1.abc', broker: at, others: [], cluster: undefined, ...init, file: 'my token' }
    t.equal(tokenText(fromFile).answer, `sealane join ${join} --token-file 'my token'\n`, `${what}, from a file`)
    const open = join.includes('CONTEXT')
    t.equal(
      text.remark,
      open ? `replace CONTEXT with the kubeconfig context of the cluster to join${list}\n` : '',
      what,
    )
  }
  t.end()
})

t.test('words for a shell, and the context that is meant where no flag names it', (t) => {
  t.equal(shellWord("it's"), "'it'\\''s'")
  t.equal(shellWord('$(x)'), "'$(x)'")
  t.equal(targetFlags({}, 'hub'), '--context hub')
  t.equal(targetFlags({}), '--context NAME')
  t.equal(targetFlags({ kubeconfig: '/a/b', context: 'c' }, 'hub'), '--kubeconfig /a/b --context c')
  t.end()
})
