/** `sealane token` beside a running broker: its output, and what the broker stores. */
import { existsSync, readFileSync, statSync } from 'node:fs'
import t from 'tap'
import { parseJoinToken } from '../../protocol/identity/token.ts'
import { LoopbackBroker } from './loopback-broker.ts'
import { runCli } from './run-cli.ts'
import { SiteFolder } from './site-folder.ts'

t.test('labels of a token', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const state = ['--state', broker.state]
  const label = (...pairs: string[]) => pairs.flatMap((pair) => ['--label', pair])
  const rows: readonly [string[], string][] = [
    [label('tier'), '--label "tier": expected KEY=VALUE'],
    [label('a=b=c'), '--label "a=b=c": expected KEY=VALUE'],
    [label('a=b', 'a=c'), '--label: expected each key once'],
    [label('a b=c'), 'labels'],
  ]
  for (const [args, text] of rows) {
    const out = await runCli(['token', 'create', ...state, ...args])
    t.not(out.code, 0)
    t.ok(out.stderr.includes(text), `${text}: ${out.stderr}`)
  }
  t.equal((await runCli(['token', 'create', ...state, ...label('tier=prod', 'zone=')])).code, 0)
  t.match((await runCli(['token', 'list', ...state, '-o', 'wide'])).stdout, / {2}tier=prod,zone= {2}/)
})

t.test('token create prints the command that joins', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t)
  const state = ['--state', broker.state]
  const made = await runCli(['token', 'create', ...state, '--ttl', '5m', '--cluster-id', 'milano'])
  t.match(
    made.stderr,
    /^token [0-9a-f]{10}, for one join, until \d{4}-.*Z\na shell keeps pasted lines in its history; the token is valid only until its join\. To write it into a file instead, use --out FILE\n/,
  )
  const [, token = ''] = /^\(umask 077; .*\) <<'EOF'\n(sealane1\.\S+)\nEOF\n/.exec(made.stdout) ?? []
  t.match(
    made.stdout,
    /\nEOF\nsealane join --site site\.yaml --token-file token\.txt\n$/,
    'it stays out of the process list',
  )
  t.equal((await runCli(['join', '--site', site.file, '--token', token])).code, 0)
  const file = `${site.folder}/token of milano`
  const out = await runCli(['token', 'create', ...state, '--cluster-id', 'milano', '--out', file])
  t.match(out, { code: 0, stdout: `sealane join --site site.yaml --token-file '${file}'\n` })
  t.match(out.stderr, /^token [0-9a-f]{10}, for one join, until \S+\n$/)
  t.equal(statSync(file).mode & 0o777, 0o600)
  const kept = readFileSync(file, 'utf8')
  t.match(kept, /^sealane1\.\S+\n$/)
  t.strictSame(await runCli(['token', 'create', ...state, '--out', file]), {
    code: 1,
    stdout: '',
    stderr: `sealane: --out ${file}: the file already exists\nchoose another name\n`,
  })
  t.equal(readFileSync(file, 'utf8'), kept)
  const nowhere = ['--state', `${site.folder}/none`, '--out', `${file} 2`]
  t.equal((await runCli(['token', 'create', ...nowhere])).code, 1)
  t.notOk(existsSync(`${file} 2`), 'no file without a token')
  const quiet = await runCli(['token', 'create', ...state, '--out', `${file} 3`, '-o', 'json'])
  t.strictSame(
    Object.keys(JSON.parse(quiet.stdout) as object),
    ['id', 'file', 'expires'],
    'the token is in the file only',
  )
  const json = await runCli(['token', 'create', ...state, '-o', 'json'])
  const other = JSON.parse(json.stdout) as { id: string; token: string }
  t.equal((await runCli(['token', 'revoke', other.id, ...state])).stdout, `token ${other.id} revoked\n`)
  const again = await runCli(['token', 'revoke', other.id, ...state, '-o', 'json'])
  t.strictSame(JSON.parse(again.stdout), { id: other.id, revoked: true })
  t.same(await runCli(['token', 'revoke', 'nope', ...state]), {
    code: 1,
    stdout: '',
    stderr: 'sealane: token "nope": not known\nreason: TokenUnknown\n',
  })
  const list = await runCli(['token', 'list', ...state])
  t.match(list.stdout, /^ID +STATE +USES LEFT +CLUSTER +ALLOWS +USED BY +EXPIRES\n/)
  t.match(list.stdout, new RegExp(`\n${other.id}  revoked          1  any      -       -        `))
  t.match(list.stdout, /\n[0-9a-f]{10} {2}used {13}0 {2}milano {3}- {7}milano {3}/)
  t.notMatch(
    list.stdout + readFileSync(`${broker.state}/broker.db`, 'latin1'),
    parseJoinToken(token, 0).secret(),
    'the secret is kept nowhere',
  )
})
