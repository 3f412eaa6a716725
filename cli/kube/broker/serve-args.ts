/** The arguments that an installed broker is started with, by whatever they were written. Pure. */

/** What `sealane broker serve` of this release takes; each has a value, but for those of ALONE. */
export const SERVE_FLAGS: readonly string[] = [
  '--state',
  '--listen',
  '--advertise',
  '--status-listen',
  '--clusterset',
  '--global-range',
  '--clusterset-ip-range',
  '--allow-namespace',
  '--external-traffic-policy',
  '--accept-empty',
  '--approve',
  '--audit-log',
  '--audit-log-size',
  '--audit-log-keep',
  '--quota-records',
  '--quota-bytes',
  '--quota-changes',
  '--quota-streams',
  '--max-members',
  '--store',
  '--etcd-ca',
  '--etcd-cert',
  '--etcd-key',
  '--etcd-password-file',
  '--connection-age',
  '--drain',
  '--ca-dir',
  '--ca-signer',
  '--ca-signer-arg',
  '--log-level',
]

/** What a flag says where it stands alone. */
const ALONE: Readonly<Record<string, string>> = { '--approve': 'yes' }

export interface ServeArgs {
  /** `--flag=value`, in their order. */
  readonly known: readonly string[]
  /** What this release does not know, as it was written. */
  readonly unknown: readonly string[]
}

const COMMAND = ['broker', 'serve']

/** Splits `broker serve --flag value --flag=value …`. */
export function readServeArgs(args: readonly string[]): ServeArgs {
  const known: string[] = []
  const unknown: string[] = []
  const words = COMMAND.every((word, i) => args[i] === word) ? args.slice(COMMAND.length) : [...args]
  for (let i = 0; i < words.length; i += 1) {
    const [word = '', next] = [words[i], words[i + 1]]
    const [flag = ''] = word.split('=', 1)
    const apart = flag === word && word.startsWith('--') && next !== undefined && !next.startsWith('--')
    if (apart) i += 1
    const alone = flag === word ? ALONE[flag] : undefined
    if (SERVE_FLAGS.includes(flag) && (apart || flag !== word)) known.push(apart ? `${word}=${next}` : word)
    else if (alone !== undefined) known.push(`${word}=${alone}`)
    else unknown.push(apart ? `${word} ${next}` : word)
  }
  return { known, unknown }
}

/** What is said for one flag, in its order. */
export function saidFor({ known }: ServeArgs, flag: string): readonly string[] {
  return known.filter((one) => one.startsWith(`${flag}=`)).map((one) => one.slice(flag.length + 1))
}
