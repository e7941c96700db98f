# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_quorate_global_optspecs
    string join \n nodes= nodes-file= tls-ca= tls-cert= tls-key= connect-timeout= node-timeout= prefix= guard-max-ttl= group= q/quiet v/verbose h/help V/version
end

function __fish_quorate_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_quorate_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_quorate_using_subcommand
    set -l cmd (__fish_quorate_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c quorate -n "__fish_quorate_needs_command" -l nodes -d 'The address of a node; repeat it for each. Without it, QUORATE_NODES has the addresses, with spaces between them' -r
complete -c quorate -n "__fish_quorate_needs_command" -l nodes-file -d 'A file with the addresses, one on each line. A `#` begins a comment' -r -F
complete -c quorate -n "__fish_quorate_needs_command" -l tls-ca -d 'A file with the authorities (PEM) to trust for nodes with TLS. Default: those that the system trusts' -r -F
complete -c quorate -n "__fish_quorate_needs_command" -l tls-cert -d 'A file with the certificate (PEM) to show to nodes with TLS' -r -F
complete -c quorate -n "__fish_quorate_needs_command" -l tls-key -d 'A file with the key (PEM) of --tls-cert' -r -F
complete -c quorate -n "__fish_quorate_needs_command" -l connect-timeout -d 'How long a connect to a node may take, from 50ms to 1m. For nodes that are far away: it takes four round trips, with TLS five' -r
complete -c quorate -n "__fish_quorate_needs_command" -l node-timeout -d 'How long one call to a node may take, up to half of the validity of a lock. Default: a tenth of the ttl, at most 500ms' -r
complete -c quorate -n "__fish_quorate_needs_command" -l prefix -d 'Text before the name of each lock' -r
complete -c quorate -n "__fish_quorate_needs_command" -l guard-max-ttl -d 'Switch the restart guard on, for locks of at most this ttl' -r
complete -c quorate -n "__fish_quorate_needs_command" -l group -d 'Refuse nodes that other users of this group do not have: each node keeps the list of all of them' -r
complete -c quorate -n "__fish_quorate_needs_command" -s q -l quiet -d 'Print no warnings'
complete -c quorate -n "__fish_quorate_needs_command" -s v -l verbose -d 'Print what happens to the lock; in `nodes` and `inspect` all that is known, and not the first 100 characters'
complete -c quorate -n "__fish_quorate_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c quorate -n "__fish_quorate_needs_command" -s V -l version -d 'Print version'
complete -c quorate -n "__fish_quorate_needs_command" -f -a "run" -d 'Run a command under a lock, and release the lock when it ends'
complete -c quorate -n "__fish_quorate_needs_command" -f -a "inspect" -d 'Show who holds locks. Exit code 0: all are held; 1: one is free; 69: one is unclear'
complete -c quorate -n "__fish_quorate_needs_command" -f -a "free" -d 'Take a lock away from its holder, and from no other. The holder is asked to leave, and the lock is free when it has, or when its ttl has passed: nobody overlaps. Says which'
complete -c quorate -n "__fish_quorate_needs_command" -f -a "nodes" -d 'Show which nodes vote, and what is wrong with them, the worst first. Exit code 70: a node has a problem; 69: no quorum can be locked; 78: one server is there twice'
complete -c quorate -n "__fish_quorate_needs_command" -f -a "lock" -d 'Acquire a lock for the steps of a pipeline, and print its record, which is a secret'
complete -c quorate -n "__fish_quorate_needs_command" -f -a "extend" -d 'Extend the lock whose record is on standard input to its full ttl. The record stays valid'
complete -c quorate -n "__fish_quorate_needs_command" -f -a "release" -d 'Release the lock whose record is on standard input'
complete -c quorate -n "__fish_quorate_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c quorate -n "__fish_quorate_using_subcommand run" -s c -d 'Run this by `sh -c`' -r
complete -c quorate -n "__fish_quorate_using_subcommand run" -l wait -d 'How long to wait for the lock' -r
complete -c quorate -n "__fish_quorate_using_subcommand run" -l ttl -d 'How long the nodes keep the lock if it is not renewed. Default: 30s' -r
complete -c quorate -n "__fish_quorate_using_subcommand run" -l label -d 'What others see of the holder. Default: user@host:pid' -r
complete -c quorate -n "__fish_quorate_using_subcommand run" -s E -d 'The exit code if the lock is held by another until the wait ended. Default: 75, or 0 with --skip and --once-per. With --once-per, DONE is that of a period that is done: 0 by default' -r
complete -c quorate -n "__fish_quorate_using_subcommand run" -l permits -d 'Acquire one of N permits: a lock on one of NAME#1 to NAME#N. At most N commands run at a time' -r
complete -c quorate -n "__fish_quorate_using_subcommand run" -l once-per -d 'Run the command once per period, on one of all machines: a duration from 1s to 1day, 1week or 1month in UTC; local-day, local-week or local-month. Waits for no holder, as --no-wait --skip' -r
complete -c quorate -n "__fish_quorate_using_subcommand run" -l kill-after -d 'How long before the end of the lease the command is told to stop (TERM). At the end it is killed. Default: 5s, or a third of the validity if that is less' -r
complete -c quorate -n "__fish_quorate_using_subcommand run" -l nodes -d 'The address of a node; repeat it for each. Without it, QUORATE_NODES has the addresses, with spaces between them' -r
complete -c quorate -n "__fish_quorate_using_subcommand run" -l nodes-file -d 'A file with the addresses, one on each line. A `#` begins a comment' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand run" -l tls-ca -d 'A file with the authorities (PEM) to trust for nodes with TLS. Default: those that the system trusts' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand run" -l tls-cert -d 'A file with the certificate (PEM) to show to nodes with TLS' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand run" -l tls-key -d 'A file with the key (PEM) of --tls-cert' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand run" -l connect-timeout -d 'How long a connect to a node may take, from 50ms to 1m. For nodes that are far away: it takes four round trips, with TLS five' -r
complete -c quorate -n "__fish_quorate_using_subcommand run" -l node-timeout -d 'How long one call to a node may take, up to half of the validity of a lock. Default: a tenth of the ttl, at most 500ms' -r
complete -c quorate -n "__fish_quorate_using_subcommand run" -l prefix -d 'Text before the name of each lock' -r
complete -c quorate -n "__fish_quorate_using_subcommand run" -l guard-max-ttl -d 'Switch the restart guard on, for locks of at most this ttl' -r
complete -c quorate -n "__fish_quorate_using_subcommand run" -l group -d 'Refuse nodes that other users of this group do not have: each node keeps the list of all of them' -r
complete -c quorate -n "__fish_quorate_using_subcommand run" -l no-wait -d 'Do not wait for a holder'
complete -c quorate -n "__fish_quorate_using_subcommand run" -l fenced -d 'Acquire the lock with a fencing token'
complete -c quorate -n "__fish_quorate_using_subcommand run" -l skip -d 'Print nothing, and exit with 0 without -E, if the lock is held by another until the wait ended'
complete -c quorate -n "__fish_quorate_using_subcommand run" -l read -d 'Hold the locks for reading: beside other readers, and not beside a lock'
complete -c quorate -n "__fish_quorate_using_subcommand run" -l again -d 'With --once-per: run the command once more, if this period is done. While it runs elsewhere, the exit code is 75'
complete -c quorate -n "__fish_quorate_using_subcommand run" -s q -l quiet -d 'Print no warnings'
complete -c quorate -n "__fish_quorate_using_subcommand run" -s v -l verbose -d 'Print what happens to the lock; in `nodes` and `inspect` all that is known, and not the first 100 characters'
complete -c quorate -n "__fish_quorate_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -l permits -d 'The locks of `run --permits N`: NAME#1 to NAME#N. Without it, 64 are looked for if NAME is free' -r
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -l once-per -d 'The lock of `run --once-per PERIOD` in this period: NAME@NUMBER. Without it, whole seconds to 59s, minutes to 59m, hours to 24h, and the weeks, months and local days are looked for if NAME is free' -r
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -l nodes -d 'The address of a node; repeat it for each. Without it, QUORATE_NODES has the addresses, with spaces between them' -r
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -l nodes-file -d 'A file with the addresses, one on each line. A `#` begins a comment' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -l tls-ca -d 'A file with the authorities (PEM) to trust for nodes with TLS. Default: those that the system trusts' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -l tls-cert -d 'A file with the certificate (PEM) to show to nodes with TLS' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -l tls-key -d 'A file with the key (PEM) of --tls-cert' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -l connect-timeout -d 'How long a connect to a node may take, from 50ms to 1m. For nodes that are far away: it takes four round trips, with TLS five' -r
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -l node-timeout -d 'How long one call to a node may take, up to half of the validity of a lock. Default: a tenth of the ttl, at most 500ms' -r
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -l prefix -d 'Text before the name of each lock' -r
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -l guard-max-ttl -d 'Switch the restart guard on, for locks of at most this ttl' -r
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -l group -d 'Refuse nodes that other users of this group do not have: each node keeps the list of all of them' -r
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -l json -d 'Print JSON'
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -s q -l quiet -d 'Print no warnings'
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -s v -l verbose -d 'Print what happens to the lock; in `nodes` and `inspect` all that is known, and not the first 100 characters'
complete -c quorate -n "__fish_quorate_using_subcommand inspect" -s h -l help -d 'Print help'
complete -c quorate -n "__fish_quorate_using_subcommand free" -l permits -d 'The locks of `run --permits N`: NAME#1 to NAME#N. Without it, 64 are looked for if NAME is free' -r
complete -c quorate -n "__fish_quorate_using_subcommand free" -l once-per -d 'The lock of `run --once-per PERIOD` in this period: NAME@NUMBER. Without it, whole seconds to 59s, minutes to 59m, hours to 24h, and the weeks, months and local days are looked for if NAME is free' -r
complete -c quorate -n "__fish_quorate_using_subcommand free" -l label -d 'Free the lock only if its holder has this label' -r
complete -c quorate -n "__fish_quorate_using_subcommand free" -l nodes -d 'The address of a node; repeat it for each. Without it, QUORATE_NODES has the addresses, with spaces between them' -r
complete -c quorate -n "__fish_quorate_using_subcommand free" -l nodes-file -d 'A file with the addresses, one on each line. A `#` begins a comment' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand free" -l tls-ca -d 'A file with the authorities (PEM) to trust for nodes with TLS. Default: those that the system trusts' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand free" -l tls-cert -d 'A file with the certificate (PEM) to show to nodes with TLS' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand free" -l tls-key -d 'A file with the key (PEM) of --tls-cert' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand free" -l connect-timeout -d 'How long a connect to a node may take, from 50ms to 1m. For nodes that are far away: it takes four round trips, with TLS five' -r
complete -c quorate -n "__fish_quorate_using_subcommand free" -l node-timeout -d 'How long one call to a node may take, up to half of the validity of a lock. Default: a tenth of the ttl, at most 500ms' -r
complete -c quorate -n "__fish_quorate_using_subcommand free" -l prefix -d 'Text before the name of each lock' -r
complete -c quorate -n "__fish_quorate_using_subcommand free" -l guard-max-ttl -d 'Switch the restart guard on, for locks of at most this ttl' -r
complete -c quorate -n "__fish_quorate_using_subcommand free" -l group -d 'Refuse nodes that other users of this group do not have: each node keeps the list of all of them' -r
complete -c quorate -n "__fish_quorate_using_subcommand free" -l now -d 'Delete the lock: it is free at once, and its holder may go on working until its lease ends'
complete -c quorate -n "__fish_quorate_using_subcommand free" -l no-wait -d 'Do not wait until the lock is free'
complete -c quorate -n "__fish_quorate_using_subcommand free" -l yes -d 'Do not ask. Needed without a terminal'
complete -c quorate -n "__fish_quorate_using_subcommand free" -s q -l quiet -d 'Print no warnings'
complete -c quorate -n "__fish_quorate_using_subcommand free" -s v -l verbose -d 'Print what happens to the lock; in `nodes` and `inspect` all that is known, and not the first 100 characters'
complete -c quorate -n "__fish_quorate_using_subcommand free" -s h -l help -d 'Print help'
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -l wait -d 'Wait until no node has a problem that passes by itself, and each has run for --max-ttl. Run it before a rolling restart, and after each node of it' -r
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -l max-ttl -d 'The longest ttl of any lock: for so long a node that restarted may have forgotten locks, or refuse free ones. With --guard-max-ttl it is that one' -r
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -l nodes -d 'The address of a node; repeat it for each. Without it, QUORATE_NODES has the addresses, with spaces between them' -r
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -l nodes-file -d 'A file with the addresses, one on each line. A `#` begins a comment' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -l tls-ca -d 'A file with the authorities (PEM) to trust for nodes with TLS. Default: those that the system trusts' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -l tls-cert -d 'A file with the certificate (PEM) to show to nodes with TLS' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -l tls-key -d 'A file with the key (PEM) of --tls-cert' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -l connect-timeout -d 'How long a connect to a node may take, from 50ms to 1m. For nodes that are far away: it takes four round trips, with TLS five' -r
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -l node-timeout -d 'How long one call to a node may take, up to half of the validity of a lock. Default: a tenth of the ttl, at most 500ms' -r
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -l prefix -d 'Text before the name of each lock' -r
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -l guard-max-ttl -d 'Switch the restart guard on, for locks of at most this ttl' -r
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -l group -d 'Refuse nodes that other users of this group do not have: each node keeps the list of all of them' -r
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -l json -d 'Print JSON'
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -l accept -d 'With --group: make these nodes those of the group, whatever they were. Until all others have the same, two may hold one lock'
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -s q -l quiet -d 'Print no warnings'
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -s v -l verbose -d 'Print what happens to the lock; in `nodes` and `inspect` all that is known, and not the first 100 characters'
complete -c quorate -n "__fish_quorate_using_subcommand nodes" -s h -l help -d 'Print help'
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l wait -d 'How long to wait for the lock' -r
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l ttl -d 'How long the nodes keep the lock if it is not renewed. Default: 30s' -r
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l label -d 'What others see of the holder. Default: user@host:pid' -r
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l nodes -d 'The address of a node; repeat it for each. Without it, QUORATE_NODES has the addresses, with spaces between them' -r
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l nodes-file -d 'A file with the addresses, one on each line. A `#` begins a comment' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l tls-ca -d 'A file with the authorities (PEM) to trust for nodes with TLS. Default: those that the system trusts' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l tls-cert -d 'A file with the certificate (PEM) to show to nodes with TLS' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l tls-key -d 'A file with the key (PEM) of --tls-cert' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l connect-timeout -d 'How long a connect to a node may take, from 50ms to 1m. For nodes that are far away: it takes four round trips, with TLS five' -r
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l node-timeout -d 'How long one call to a node may take, up to half of the validity of a lock. Default: a tenth of the ttl, at most 500ms' -r
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l prefix -d 'Text before the name of each lock' -r
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l guard-max-ttl -d 'Switch the restart guard on, for locks of at most this ttl' -r
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l group -d 'Refuse nodes that other users of this group do not have: each node keeps the list of all of them' -r
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l no-wait -d 'Do not wait for a holder'
complete -c quorate -n "__fish_quorate_using_subcommand lock" -l fenced -d 'Acquire the lock with a fencing token'
complete -c quorate -n "__fish_quorate_using_subcommand lock" -s q -l quiet -d 'Print no warnings'
complete -c quorate -n "__fish_quorate_using_subcommand lock" -s v -l verbose -d 'Print what happens to the lock; in `nodes` and `inspect` all that is known, and not the first 100 characters'
complete -c quorate -n "__fish_quorate_using_subcommand lock" -s h -l help -d 'Print help'
complete -c quorate -n "__fish_quorate_using_subcommand extend" -l nodes -d 'The address of a node; repeat it for each. Without it, QUORATE_NODES has the addresses, with spaces between them' -r
complete -c quorate -n "__fish_quorate_using_subcommand extend" -l nodes-file -d 'A file with the addresses, one on each line. A `#` begins a comment' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand extend" -l tls-ca -d 'A file with the authorities (PEM) to trust for nodes with TLS. Default: those that the system trusts' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand extend" -l tls-cert -d 'A file with the certificate (PEM) to show to nodes with TLS' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand extend" -l tls-key -d 'A file with the key (PEM) of --tls-cert' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand extend" -l connect-timeout -d 'How long a connect to a node may take, from 50ms to 1m. For nodes that are far away: it takes four round trips, with TLS five' -r
complete -c quorate -n "__fish_quorate_using_subcommand extend" -l node-timeout -d 'How long one call to a node may take, up to half of the validity of a lock. Default: a tenth of the ttl, at most 500ms' -r
complete -c quorate -n "__fish_quorate_using_subcommand extend" -l prefix -d 'Text before the name of each lock' -r
complete -c quorate -n "__fish_quorate_using_subcommand extend" -l guard-max-ttl -d 'Switch the restart guard on, for locks of at most this ttl' -r
complete -c quorate -n "__fish_quorate_using_subcommand extend" -l group -d 'Refuse nodes that other users of this group do not have: each node keeps the list of all of them' -r
complete -c quorate -n "__fish_quorate_using_subcommand extend" -s q -l quiet -d 'Print no warnings'
complete -c quorate -n "__fish_quorate_using_subcommand extend" -s v -l verbose -d 'Print what happens to the lock; in `nodes` and `inspect` all that is known, and not the first 100 characters'
complete -c quorate -n "__fish_quorate_using_subcommand extend" -s h -l help -d 'Print help'
complete -c quorate -n "__fish_quorate_using_subcommand release" -l nodes -d 'The address of a node; repeat it for each. Without it, QUORATE_NODES has the addresses, with spaces between them' -r
complete -c quorate -n "__fish_quorate_using_subcommand release" -l nodes-file -d 'A file with the addresses, one on each line. A `#` begins a comment' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand release" -l tls-ca -d 'A file with the authorities (PEM) to trust for nodes with TLS. Default: those that the system trusts' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand release" -l tls-cert -d 'A file with the certificate (PEM) to show to nodes with TLS' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand release" -l tls-key -d 'A file with the key (PEM) of --tls-cert' -r -F
complete -c quorate -n "__fish_quorate_using_subcommand release" -l connect-timeout -d 'How long a connect to a node may take, from 50ms to 1m. For nodes that are far away: it takes four round trips, with TLS five' -r
complete -c quorate -n "__fish_quorate_using_subcommand release" -l node-timeout -d 'How long one call to a node may take, up to half of the validity of a lock. Default: a tenth of the ttl, at most 500ms' -r
complete -c quorate -n "__fish_quorate_using_subcommand release" -l prefix -d 'Text before the name of each lock' -r
complete -c quorate -n "__fish_quorate_using_subcommand release" -l guard-max-ttl -d 'Switch the restart guard on, for locks of at most this ttl' -r
complete -c quorate -n "__fish_quorate_using_subcommand release" -l group -d 'Refuse nodes that other users of this group do not have: each node keeps the list of all of them' -r
complete -c quorate -n "__fish_quorate_using_subcommand release" -s q -l quiet -d 'Print no warnings'
complete -c quorate -n "__fish_quorate_using_subcommand release" -s v -l verbose -d 'Print what happens to the lock; in `nodes` and `inspect` all that is known, and not the first 100 characters'
complete -c quorate -n "__fish_quorate_using_subcommand release" -s h -l help -d 'Print help'
complete -c quorate -n "__fish_quorate_using_subcommand help; and not __fish_seen_subcommand_from run inspect free nodes lock extend release help" -f -a "run" -d 'Run a command under a lock, and release the lock when it ends'
complete -c quorate -n "__fish_quorate_using_subcommand help; and not __fish_seen_subcommand_from run inspect free nodes lock extend release help" -f -a "inspect" -d 'Show who holds locks. Exit code 0: all are held; 1: one is free; 69: one is unclear'
complete -c quorate -n "__fish_quorate_using_subcommand help; and not __fish_seen_subcommand_from run inspect free nodes lock extend release help" -f -a "free" -d 'Take a lock away from its holder, and from no other. The holder is asked to leave, and the lock is free when it has, or when its ttl has passed: nobody overlaps. Says which'
complete -c quorate -n "__fish_quorate_using_subcommand help; and not __fish_seen_subcommand_from run inspect free nodes lock extend release help" -f -a "nodes" -d 'Show which nodes vote, and what is wrong with them, the worst first. Exit code 70: a node has a problem; 69: no quorum can be locked; 78: one server is there twice'
complete -c quorate -n "__fish_quorate_using_subcommand help; and not __fish_seen_subcommand_from run inspect free nodes lock extend release help" -f -a "lock" -d 'Acquire a lock for the steps of a pipeline, and print its record, which is a secret'
complete -c quorate -n "__fish_quorate_using_subcommand help; and not __fish_seen_subcommand_from run inspect free nodes lock extend release help" -f -a "extend" -d 'Extend the lock whose record is on standard input to its full ttl. The record stays valid'
complete -c quorate -n "__fish_quorate_using_subcommand help; and not __fish_seen_subcommand_from run inspect free nodes lock extend release help" -f -a "release" -d 'Release the lock whose record is on standard input'
complete -c quorate -n "__fish_quorate_using_subcommand help; and not __fish_seen_subcommand_from run inspect free nodes lock extend release help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'

# Behind `--`, the words are those of a command.
function __fish_quorate_command
    set -l words (commandline -opc) (commandline -ct)
    set -l at (contains -i -- -- $words)
    __fish_complete_subcommand --commandline $words[(math $at + 1)..]
end
complete -c quorate -n "contains -- -- (commandline -opc)" -x -a "(__fish_quorate_command)"
