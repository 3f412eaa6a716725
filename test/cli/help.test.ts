/** Every command has a help text, and the program accepts the example in it. */
import type { Command } from 'commander'
import t from 'tap'
import { buildProgram } from '../../cli/program.ts'
import { runCli } from './run-cli.ts'

const COMMANDS = [
  'broker',
  'broker serve',
  'broker deploy',
  'broker backup',
  'broker restore',
  'broker status',
  'broker gateways',
  'broker services',
  'broker verify',
  'broker migrate',
  'broker ca',
  'broker ca status',
  'broker ca rotate',
  'broker ca finish',
  'broker ca abort',
  'broker clusterset',
  'broker clusterset create',
  'broker clusterset list',
  'broker clusterset remove',
  'broker relay',
  'broker relay add',
  'broker relay list',
  'broker relay remove',
  'relay',
  'relay serve',
  'token',
  'token create',
  'token list',
  'token revoke',
  'cluster',
  'cluster list',
  'cluster drain',
  'cluster undrain',
  'cluster evict',
  'cluster rekey',
  'cluster quota',
  'cluster waiting',
  'cluster accept',
  'cluster refuse',
  'join',
  'leave',
  'uninstall',
  'gateway',
  'gateway drain',
  'gateway undrain',
  'gateway rotate-keys',
  'site',
  'site init',
  'site check',
  'site install',
  'site uninstall',
  'site restart',
  'site invite',
  'site revoke',
  'site promote',
  'up',
  'export',
  'unexport',
  'service',
  'service add',
  'service remove',
  'service list',
  'status',
  'console',
  'console serve',
  'diagnose',
  'explain',
  'verify',
  'benchmark',
  'gather',
  'members',
  'show',
  'show clusters',
  'show endpoints',
  'show gateways',
  'show connections',
  'show relays',
  'show services',
  'show exports',
  'show access',
  'show traffic',
  'show denied',
  'access',
  'access check',
  'access default',
  'topology',
  'topology show',
  'topology plan',
  'topology set',
  'top',
  'flows',
  'version',
]

function tree(command: Command, path: readonly string[] = []): [string, Command][] {
  const shown = command.createHelp().visibleCommands(command)
  return shown.flatMap((one): [string, Command][] => {
    const name = [...path, one.name()]
    return [[name.join(' '), one], ...tree(one, name)]
  })
}

t.test('the commands are the ones that the documentation names', (t) => {
  const program = buildProgram(new AbortController().signal)
  t.same(
    tree(program).map(([name]) => name),
    COMMANDS,
  )
  t.end()
})

t.test('what runs on one machine listens on different ports, if no flag names others', (t) => {
  // `console serve` is for pods.
  const served = tree(buildProgram(new AbortController().signal)).filter(([name]) => name !== 'console serve')
  const all = served.flatMap(([name, { options }]) =>
    options.flatMap((option) => {
      if (!['listen', 'statusListen'].includes(option.attributeName())) return []
      const text = String(option.defaultValueDescription ?? option.defaultValue)
      return /:\d+/.test(text) ? [{ name, port: text.replace(/^.*:/, '') }] : []
    }),
  )
  t.same(
    all.map(({ name }) => name),
    ['broker serve', 'broker serve', 'relay serve', 'relay serve', 'up', 'console'],
  )
  t.equal(new Set(all.map(({ port }) => port)).size, all.length, JSON.stringify(all))
  t.end()
})

t.test('each has help with an example that parses', async (t) => {
  for (const name of COMMANDS) {
    const { code, stdout, stderr } = await runCli([...name.split(' '), '--help'])
    t.equal(code, 0, name)
    t.equal(stderr, '', `${name}: nothing on stderr`)
    t.match(stdout, new RegExp(`^Usage: sealane ${name} `), name)
    t.notMatch(stdout, / {2}help \[command\]/, `${name}: names no command that is not there`)
    if (stdout.includes('--site <file>') && stdout.includes('--context <name>')) {
      t.match(
        stdout.replaceAll(/\s+/g, ' '),
        'without --context, --kubeconfig and KUBECONFIG: the site of --site',
        name,
      )
    }
    if (stdout.includes('--state <directory>') && stdout.includes('--context <name>')) {
      t.match(
        stdout.replaceAll(/\s+/g, ' '),
        "without --context, --kubeconfig and KUBECONFIG: this machine's broker",
        name,
      )
    }
    const readers =
      /^(show |status|console|diagnose|explain|gather|members|broker (status|gateways|services|verify|ca status|clusterset list|relay list)|token list|cluster list|cluster waiting|access (check|default)|topology (show|plan)|top$|flows|version)/
    const looks = readers.test(name)
    t.equal(stdout.includes('~/.kube/config'), looks, `${name}: where it looks`)
    const [, example = ''] = /\nExample:\n {2}sealane (.*)\n$/.exec(stdout) ?? []
    t.ok(example.startsWith(name), `${name}: has an example, and it is its own: ${example}`)
    t.equal(await problemWith(example.split(' ')), undefined, `${name}: the example is right`)
  }
})

/** Returns the error of the command line for these arguments, without running the command. */
async function problemWith(args: string[]): Promise<string | undefined> {
  const program = buildProgram(new AbortController().signal)
  for (const [, command] of tree(program)) {
    // A group has no options of its own. `console` does something, and has a command below it.
    if (command.commands.length === 0 || command.options.length > 0) command.action(() => undefined)
  }
  return program.parseAsync(args, { from: 'user' }).then(
    () => undefined,
    (error: unknown) => String(error),
  )
}

t.test('help NAME is NAME --help', async (t) => {
  for (const words of [[], ['join'], ['show', 'clusters']]) {
    t.same(await runCli(['help', ...words]), await runCli([...words, '--help']), words.join(' '))
  }
})

t.test('--version', async (t) => {
  const { code, stdout } = await runCli(['--version'])
  t.equal(code, 0)
  t.match(stdout, /^\d+\.\d+\.\d+\n$/)
})
