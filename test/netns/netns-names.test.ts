/**
 * Namespaces that a killed test leaves behind are removed by the next one, and no others are. A program in a namespace
 * goes on, whether or not a test reads its output.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { namedNetns, ownedNetnsName, sweepNetns } from '../support/netns-names.ts'
import { inPrivateNetns, withNetns } from '../support/netns.ts'

/** A test that hangs in a namespace, with a process in it. It prints the namespace's name and that process's id. */
const HANGING = `
import { withNetns } from ${JSON.stringify(join(import.meta.dirname, '../support/netns.ts'))}
await withNetns(async (ns) => {
  const { pid } = ns.spawn('sleep', ['1000'])
  console.log(ns.name, pid)
  await new Promise(() => setInterval(() => undefined, 1000))
})`

/** No pipe and no socket buffers this much. */
const FLOOD_BYTES = 4_000_000
const FLOOD = `head -c ${FLOOD_BYTES} /dev/zero`

await inPrivateNetns(t, import.meta.url, () => {
  t.test('a test that was killed', async (t) => {
    const test = spawn(process.execPath, ['--input-type=module', '-e', HANGING], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const [said] = (await once(test.stdout, 'data')) as [Buffer]
    const [name = '', pid = ''] = said.toString().trim().split(' ')
    t.same(sweepNetns(), [], 'it lives: its namespace stays')
    t.same(namedNetns(), [name])

    test.kill('SIGKILL')
    await once(test, 'close')
    t.ok(isAlive(Number(pid)), 'the process in the namespace has outlived it')
    await withNetns(async (ns) => t.same(namedNetns(), [ns.name], 'the next test begins with its own alone'))
    await eventually(() => !isAlive(Number(pid)), { say: 'and the process has ended' })
  })

  t.test('whose is it?', async (t) => {
    await withNetns(async (ns) => {
      const [sl, pidNamespace, pid = '', start = '', number = ''] = ns.name.split('-')
      const named = (...parts: (string | undefined)[]): string => parts.join('-')
      const rows: [why: string, name: string, swept: boolean][] = [
        ['ours', named(sl, pidNamespace, pid, start, '77'), false],
        ['ours, a longer name', named(ownedNetnsName(), 'c1n1-984f4134'), false],
        ['an earlier process had our id', named(sl, pidNamespace, pid, `${start}0`, number), true],
        ['nobody has that id', named(sl, pidNamespace, '4194305', start, '1-wan'), true],
        ['made in another pid namespace', named(sl, `${pidNamespace ?? ''}0`, '4194305', start, '1'), false],
        ['of something else', 'sl-ca3a69e8-wan', false],
        ['of something else', 'vpn', false],
      ]
      for (const [, name] of rows) await ns.exec('ip', ['netns', 'add', name])
      t.same(sweepNetns().sort(), rows.flatMap(([, name, swept]) => (swept ? [name] : [])).sort())
      const left = namedNetns()
      for (const [why, name, swept] of rows) t.equal(!left.includes(name), swept, `${why}: ${name}`)
      for (const [, name] of rows) await ns.tryExec('ip', ['netns', 'del', name])
    })
  })

  t.test('a program that writes more than a pipe takes', async (t) => {
    await withNetns(async (ns) => {
      const writer = (): ChildProcess => ns.spawn('sh', ['-c', `echo ready; ${FLOOD}; ${FLOOD} >&2; echo last`])
      const unread = writer()
      const begun = writer()
      await once(begun.stdout!, 'data')
      const whole = writer()
      let said = ''
      whole.stdout?.on('data', (chunk: Buffer) => (said += chunk.toString()))
      const all = [unread, begun, whole]
      await eventually(() => all.every(({ exitCode }) => exitCode === 0), {
        deadlineMs: 10_000,
        say: 'each ends by itself, read not at all, for its first word, or whole',
      })
      await eventually(() => said.endsWith('last\n'), { say: 'the last word is read' })
      t.equal(said.length, 'ready\n'.length + FLOOD_BYTES + 'last\n'.length, 'who reads misses nothing')
    })
  })
})

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
