/** Tokens of `sealane token create`: printed, kept in a file, read again. */
import { type KubeTarget, shellWord } from '../target.ts'

export interface TokenText {
  /** Lines for a shell. */
  readonly answer: string
  /** For a person; empty where nothing is left open. */
  readonly remark: string
}

export interface TokenTextInit {
  readonly token: string
  /** Of the broker; undefined: it is on this machine, and so sites join. */
  readonly broker: KubeTarget | undefined
  /** Contexts of the broker's kubeconfig, but for its own. */
  readonly others: readonly string[]
  /** The only cluster that may use the token. */
  readonly cluster: string | undefined
  /** Has the token already: only the line that joins is printed. */
  readonly file?: string | undefined
}

const FILE = 'token.txt'
/** Says itself what is meant where it is pasted as it is: no kubeconfig has it. */
const PLACE = 'CONTEXT'

/** What `sealane token create` prints: lines to paste, that keep the token out of the process list. Pure. */
export function tokenText({ token, broker, others, cluster, file: written }: TokenTextInit): TokenText {
  const write = written === undefined ? `(umask 077; rm -f ${FILE}; cat > ${FILE}) <<'EOF'\n${token}\nEOF\n` : ''
  const from = `--token-file ${shellWord(written ?? FILE)}`
  if (broker === undefined) {
    return { answer: `${write}sealane join --site site.yaml ${from}\n`, remark: '' }
  }
  const known = others.length === 1 ? others[0] : others.find((name) => name === cluster)
  const file =
    broker.kubeconfig === undefined || known === undefined ? '' : `--kubeconfig ${shellWord(broker.kubeconfig)} `
  const answer = `${write}sealane join ${file}--context ${shellWord(known ?? PLACE)} ${from}\n`
  if (known !== undefined) return { answer, remark: '' }
  const list = others.length === 0 ? '' : `, one of ${others.join(', ')}`
  return { answer, remark: `${PLACE} is the kubeconfig's context of the cluster that joins${list}\n` }
}
