# plots.gp - the charts of plots/, from build/*.tsv as `make -C bench` leaves them.
# Run by `make -C bench plots`, in bench/.

set terminal svg size 760,430 font "sans-serif,12" background "white"
set encoding utf8
set datafile separator "\t"
set key outside right top vertical Left reverse spacing 1.15 samplen 2
set grid ytics lc rgb "#dddddd" lw 1
set border 3 lc rgb "#555555"
set tics nomirror
set bmargin 5

full = "#b3261e"
normal = "#1f5fa8"
set style line 1 lc rgb full lw 2 pt 7 ps 0.6            # FULL, stored
set style line 2 lc rgb full lw 2 pt 5 ps 0.6 dt (8,4)   # FULL, to done
set style line 3 lc rgb normal lw 2 pt 7 ps 0.6          # NORMAL, stored
set style line 4 lc rgb normal lw 2 pt 5 ps 0.6 dt (8,4) # NORMAL, to done
set style line 5 lc rgb full lw 1 dt (2,3)               # raw SQLite
set style line 6 lc rgb normal lw 1 dt (2,3)

machine(file) = system("head -1 " . file . " | cut -c3- | sed 's/;/\\n/'")
rows(level, want) = "< awk -F'\\t' '$1 == \"" . level . "\" && " . want . "' build/throughput.tsv"
raw(level) = real(system("awk -F'\\t' '$1 == \"" . level . "\" && $2 == \"raw\" { print $6 }' build/throughput.tsv"))
raw_full = raw("FULL")
raw_normal = raw("NORMAL")

# ---- by batch size

set output "plots/batch.svg"
set label 1 machine("build/throughput.tsv") noenhanced at screen 0.02, screen 0.05 font ",9" textcolor rgb "#777777"
set title "Throughput by batch size, one thread, 200-byte payload" font ",14"
set xlabel "events per eb\\_send" offset 0, 0.6
set ylabel "events per second"
set logscale x 10
set logscale y 10
set format y "%.0s%c"
set xrange [0.8:1250]
set yrange [*:*]
batch(kind) = "$3 == " . kind . " && $4 == 1 && $2 !~ /publish/"
plot rows("NORMAL", batch(0)) using 5:6:7:8 with yerrorlines ls 3 title "NORMAL, stored", \
     rows("NORMAL", batch(1)) using 5:6:7:8 with yerrorlines ls 4 title "NORMAL, to done", \
     rows("FULL", batch(0)) using 5:6:7:8 with yerrorlines ls 1 title "FULL, stored", \
     rows("FULL", batch(1)) using 5:6:7:8 with yerrorlines ls 2 title "FULL, to done", \
     raw_normal ls 6 title "raw SQLite, NORMAL", \
     raw_full ls 5 title "raw SQLite, FULL"

# ---- by publisher threads

set output "plots/threads.svg"
set title "Throughput by publisher threads, eb\\_post one by one, 200-byte payload" font ",14"
set xlabel "threads that call eb\\_post" offset 0, 0.6
set logscale x 2
set xrange [0.9:36]
threads(kind) = "$3 == " . kind . " && $5 == 1 && $2 !~ /publish/"
plot rows("NORMAL", threads(0)) using 4:6:7:8 with yerrorlines ls 3 title "NORMAL, stored", \
     rows("NORMAL", threads(1)) using 4:6:7:8 with yerrorlines ls 4 title "NORMAL, to done", \
     rows("FULL", threads(0)) using 4:6:7:8 with yerrorlines ls 1 title "FULL, stored", \
     rows("FULL", threads(1)) using 4:6:7:8 with yerrorlines ls 2 title "FULL, to done", \
     raw_normal ls 6 title "raw SQLite, NORMAL", \
     raw_full ls 5 title "raw SQLite, FULL"

# ---- by rows in the file

set output "plots/rows.svg"
set label 1 machine("build/growth.tsv")
set title "Throughput by rows in the file, relative to 10,000 rows in the same seconds" font ",14"
set xlabel "events in the file" offset 0, 0.6
set ylabel "events per second, 10,000 rows = 1"
set logscale x 10
unset logscale y
set format x "%.0s%c"
set format y "%.1f"
set xrange [8000:*]
set yrange [0:2]
grown(level, job) = "< awk -F'\\t' '$1 == \"" . level . "\" && $2 == \"" . job . "\"' build/growth.tsv"
plot grown("NORMAL", "eb_send, 100 per call") using 3:6:7:8 with yerrorlines ls 3 title "NORMAL, 100 per eb\\_send", \
     grown("NORMAL", "eb_post to done, 1 thread") using 3:6:7:8 with yerrorlines ls 4 title "NORMAL, one by one to done", \
     grown("FULL", "eb_send, 100 per call") using 3:6:7:8 with yerrorlines ls 1 title "FULL, 100 per eb\\_send", \
     grown("FULL", "eb_post to done, 1 thread") using 3:6:7:8 with yerrorlines ls 2 title "FULL, one by one to done", \
     1 lc rgb "#999999" lw 1 notitle

# ---- latency

set output "plots/latency.svg"
set label 1 machine("build/latency.tsv")
set title "Latency, 500 events per second" font ",14"
set xlabel "percentile" offset 0, 0.6
set ylabel "microseconds"
unset logscale x
set logscale y 10
set format y "%g"
set yrange [10:*]
nines(p) = -log10(1 - p / 100.0)
set xrange [0:3.05]
set xtics ("0" 0, "50" nines(50), "90" 1, "99" 2, "99.9" 3)
plot "build/latency.tsv" index "FULL, eb_post to handler start" using (nines($1)):2 with lines ls 1 title "FULL, to handler start", \
     "" index "FULL, raw commit, same tables" using (nines($1)):2 with lines ls 5 title "FULL, raw commit", \
     "" index "NORMAL, eb_post to handler start" using (nines($1)):2 with lines ls 3 title "NORMAL, to handler start", \
     "" index "NORMAL, eb_post" using (nines($1)):2 with lines ls 4 title "NORMAL, eb\\_post returns", \
     "" index "NORMAL, raw commit, same tables" using (nines($1)):2 with lines ls 6 title "NORMAL, raw commit"
