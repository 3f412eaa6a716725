/** The question "Take it out?" answered with yes, with no, and without a terminal. A site asks only at a terminal. */
import { PassThrough } from 'node:stream'
import t, { type Test } from 'tap'
import { confirm } from '../../cli/context/confirm.ts'
import { UserError } from '../../runtime/errors.ts'
import { eventually } from '../support/eventually.ts'
import { failure, messageOf } from '../support/failure.ts'
import { LoopbackBroker } from './loopback-broker.ts'
import { type CliResult, runCli } from './run-cli.ts'
import { SiteFolder } from './site-folder.ts'

/** Returns a terminal at which the answer is typed after the question appears. */
function terminal(answer: string | undefined) {
  const input = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => input })
  const output = Object.assign(new PassThrough(), { isTTY: true })
  let said = ''
  let answered = false
  output.setEncoding('utf8').on('data', (text: string) => {
    said += text
    if (answered || !said.includes('Type yes: ')) return
    answered = true
    if (answer === undefined) input.end()
    else input.write(`${answer}\r`)
  })
  return { input, output, interrupt: () => undefined, said: () => said }
}

const { signal } = new AbortController()
const output = { answer: () => undefined, remark: () => undefined }
const INIT = { what: 'Take it out', yes: false, command: 'sealane leave --context c1 --yes' }

t.test('answers', async (t) => {
  for (const answer of ['yes', ' YES ']) await confirm(INIT, { signal, output, terminal: terminal(answer) })
  for (const answer of ['', 'y', 'no', 'yes please']) {
    const refused = await messageOf(confirm(INIT, { signal, output, terminal: terminal(answer) }))
    t.equal(refused, 'nothing was changed', JSON.stringify(answer))
  }
  t.equal(
    await messageOf(confirm(INIT, { signal, output, terminal: terminal(undefined) })),
    'the question was not answered: nothing was changed',
  )
  await confirm({ ...INIT, yes: true }, { signal, output, terminal: null })
  const error = await failure(confirm(INIT, { signal, output, terminal: null }))
  t.ok(error instanceof UserError)
  t.match(error, {
    exitCode: 2,
    message: 'there is no terminal to ask for confirmation: expected --yes',
    hint: 'run: sealane leave --context c1 --yes',
  })
})

t.test('a site that would renumber others asks at a terminal, and says so without one', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const join = async (id: string, answer?: string): Promise<CliResult> => {
    const site = new SiteFolder(t, id)
    const args = ['join', '--site', site.file, '--token', await broker.token()]
    return runCli(args, answer === undefined ? {} : { terminal: terminal(answer) })
  }
  const first = await join('milano', 'no')
  t.match(first, { code: 0, stdout: /with its own addresses/ }, 'nobody is there to renumber: nothing is asked')
  const named = (verb: string): RegExp =>
    new RegExp(`other members ${verb} global addresses .*: milano \\(244.0.0.0/16\\)`)
  t.match(await join('paris', 'no'), { code: 1, stdout: '', stderr: /nothing was changed/ })
  const agreed = await join('paris', 'yes')
  t.match(agreed, { code: 0, stdout: /with global addresses 244.1.0.0\/16/, stderr: named('get') })
  t.match(agreed.stderr, named('got'))
  t.match(agreed.stderr, /Open connections with pods of milano break, how many is not known; names lead/)
  t.notMatch((await join('tokyo')).stderr, /other members/, 'they have them already')
})

t.test('a script that joins a site is told whom that renumbered', async (t) => {
  const broker = await LoopbackBroker.start(t)
  for (const id of ['milano', 'paris']) {
    const site = new SiteFolder(t, id)
    const { stderr } = await runCli(['join', '--site', site.file, '--token', await broker.token()])
    t.equal(/other members got global addresses .*: milano/.test(stderr), id === 'paris')
  }
})

async function member(t: Test): Promise<{ site: SiteFolder; broker: LoopbackBroker }> {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t, 'paris')
  await runCli(['join', '--site', site.file, '--token', await broker.token()])
  return { site, broker }
}

t.test('a site asks at a terminal, and needs --yes without one', async (t) => {
  const { site, broker } = await member(t)
  const leave = (answer: string): Promise<CliResult> =>
    runCli(['leave', '--site', site.file], { terminal: terminal(answer) })
  const listed = 'this removes from site paris:\n  paris leaves clusterset demo: no other cluster is known here\n'
  t.strictSame(await leave('no'), { code: 1, stdout: '', stderr: `${listed}sealane: nothing was changed\n` })
  t.not(site.identity().length, 0, 'it is a member still')
  const left = await leave('yes')
  t.match(left, { code: 0, stdout: 'paris has left the clusterset\n' })
  t.ok(left.stderr.startsWith(listed))
  await eventually(() => site.identity().length === 0)

  await runCli(['join', '--site', site.file, '--token', await broker.token()])
  const quiet = await runCli(['leave', '--site', site.file, '--yes'], { terminal: terminal('no') })
  t.equal(quiet.code, 0, '--yes is not asked')
  await runCli(['join', '--site', site.file, '--token', await broker.token()])
  t.strictSame(await runCli(['leave', '--site', site.file]), {
    code: 2,
    stdout: '',
    stderr: `${listed}sealane: there is no terminal to ask for confirmation: expected --yes\nrun: sealane leave --site ${site.file} --yes\n`,
  })
  t.not(site.identity().length, 0, 'a script without --yes changes nothing')
})
